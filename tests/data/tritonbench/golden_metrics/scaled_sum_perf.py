from performance_utils import Performance_Metrics, do_bench_config
from TritonBench_v1.scaled_sum import scaled_sum

import torch


class performance_metrics(Performance_Metrics):
    def __init__(self, dtype=None, is_backward=False, **kwargs):
        super().__init__("scaled_sum", dtype=dtype, is_backward=is_backward, **kwargs)

    def get_input_tensors(self):
        self.input_tensors = []
        for power in range(12, 22):
            x = torch.rand(2**power)
            y = torch.rand(2**power)
            self.input_tensors.append((x, y))

    def to_cuda(self, input_tensor):
        x, y = input_tensor
        return x.cuda(), y.cuda()

    def call_op(self, input_tensor):
        x, y = input_tensor
        return scaled_sum(x, y, scale=3.0)

    def get_gbps(self, input_tensor, runtime):
        return 0.0

    def get_tflops(self, input_tensor, runtime):
        return 0.0


if __name__ == "__main__":
    script = performance_metrics()
    script.get_input_tensors()
    script.run_benchmark()
