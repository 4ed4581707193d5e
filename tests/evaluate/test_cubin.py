"""Registers, frames and digests from a cubin, against NVIDIA's own tool."""

import subprocess
from pathlib import Path

import pytest

triton = pytest.importorskip("triton", reason="needs triton")

from kbtui.evaluate.inlane import cubin, ptx  # noqa: E402

PLAIN = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry {name}(.param .u64 p, .param .u32 n)
{{
  .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .f32 %f<3>;
  ld.param.u64 %rd1, [p];
  ld.param.u32 %r1, [n];
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.f32 %f1, [%rd3];
  add.f32 %f2, %f1, {constant};
  st.global.f32 [%rd3], %f2;
  ret;
}}
"""
WITH_FRAME = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry framed(.param .u64 p, .param .u32 n)
{
  .local .align 16 .b8 store[256];
  .reg .b32 %r<4>; .reg .b64 %rd<6>; .reg .f32 %f<3>;
  mov.u64 %rd5, store;
  ld.param.u64 %rd1, [p];
  ld.param.u32 %r1, [n];
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  add.s64 %rd4, %rd5, %rd2;
  ld.global.f32 %f1, [%rd3];
  st.local.f32 [%rd4], %f1;
  ld.local.f32 %f2, [%rd5+16];
  st.global.f32 [%rd3], %f2;
  ret;
}
"""


def tool(name: str) -> Path:
    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    if not path.exists():
        pytest.skip(f"triton's wheel has no {name}")
    return path


def assemble(folder: Path, text: str) -> bytes:
    source, target = folder / "k.ptx", folder / "k.cubin"
    source.write_text(text)
    subprocess.run([tool("ptxas"), "-arch=sm_90", str(source), "-o", str(target)], check=True, capture_output=True)
    return target.read_bytes()


def usage(folder: Path, binary: bytes) -> dict[str, int]:
    """{"REG": .., "STACK": .., ...} as cuobjdump prints them."""
    path = folder / "seen.cubin"
    path.write_bytes(binary)
    text = subprocess.run(
        [tool("cuobjdump"), "-res-usage", str(path)], check=True, capture_output=True, text=True
    ).stdout
    line = next(line for line in text.splitlines() if "REG:" in line)
    return {
        part.split(":")[0]: int(part.split(":")[1]) for part in line.split() if part.split(":")[0] in ("REG", "STACK")
    }


@pytest.mark.parametrize(
    ("text", "name"), [(PLAIN.format(name="plain", constant="0f3F800000"), "plain"), (WITH_FRAME, "framed")]
)
def test_registers_and_frame_are_what_cuobjdump_says(tmp_path, text, name):
    binary = assemble(tmp_path, text)
    seen = usage(tmp_path, binary)
    facts = cubin.read(binary, name)
    assert facts.registers == seen["REG"]
    assert facts.frame_bytes == seen["STACK"]


def test_a_frame_is_seen(tmp_path):
    assert cubin.read(assemble(tmp_path, WITH_FRAME), "framed").frame_bytes >= 256


def test_the_digest_ignores_names_and_sees_code(tmp_path):
    one = cubin.read(assemble(tmp_path, PLAIN.format(name="one", constant="0f3F800000")), "one")
    renamed = cubin.read(assemble(tmp_path, PLAIN.format(name="another_name", constant="0f3F800000")), "another_name")
    changed = cubin.read(assemble(tmp_path, PLAIN.format(name="one", constant="0f40000000")), "one")
    assert one.digest == renamed.digest
    assert one.digest != changed.digest


def test_a_kernel_that_is_not_there(tmp_path):
    binary = assemble(tmp_path, WITH_FRAME)
    with pytest.raises(cubin.MalformedCubin, match="no kernel 'absent'"):
        cubin.read(binary, "absent")


@pytest.mark.parametrize("binary", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + bytes(58), b"\x7fELF\x02\x01" + b"\xff" * 60])
def test_bytes_that_are_no_cubin(binary):
    with pytest.raises(cubin.MalformedCubin):
        cubin.read(binary, "k")


@pytest.mark.parametrize(
    ("line", "width"),
    [
        ("\t@%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];", 16),
        ("\tld.global.L1::evict_last.b16 { %rs1 }, [ %rd1 + 0 ];", 2),
        ("\tst.global.v2.b32 [ %rd1 + 0 ], { %r1, %r2 };", 8),
        ("\tcp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2;", 16),
        ("\tcp.async.bulk.tensor.2d.shared::cluster.global [%r1], [%rd1, {%r2, %r3}], [%r4];", 16),
        ("\tld.shared.v4.b32 { %r1, %r2, %r3, %r4 }, [ %r5 ];", 0),
        ("\tcp.async.commit_group;", 0),
    ],
)
def test_access_width_from_ptx(line, width):
    assert ptx.access_bytes(line) == width


def test_access_width_is_a_mean():
    assert ptx.access_bytes("ld.global.b32 {%r1}, [%rd1];\nst.global.v4.b32 [%rd1], {%r1,%r2,%r3,%r4};") == 10
