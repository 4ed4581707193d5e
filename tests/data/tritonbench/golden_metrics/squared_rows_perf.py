from performance_utils import Performance_Metrics, do_bench_config
from TritonBench_v1.squared_rows import SquaredRows

import torch


class performance_metrics(Performance_Metrics):
    def __init__(self, dtype=None, is_backward=False, **kwargs):
        super().__init__("squared_rows", dtype=dtype, is_backward=is_backward, **kwargs)

    def get_input_tensors(self):
        self.input_tensors = []
        for power in range(3, 9):
            self.input_tensors.append(torch.rand(2**power, 128))

    def to_cuda(self, input_tensor):
        return input_tensor.cuda()

    def call_op(self, input_tensor):
        return SquaredRows.apply(input_tensor)

    def get_gbps(self, input_tensor, runtime):
        return 0.0

    def get_tflops(self, input_tensor, runtime):
        return 0.0


if __name__ == "__main__":
    script = performance_metrics()
    script.get_input_tensors()
    script.run_benchmark()
