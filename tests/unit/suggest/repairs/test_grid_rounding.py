from __future__ import annotations

from kernelmate.suggest.repairs.grid_rounding import REPAIR

TWICE = """\
// /// kernelmate
// sizes = [{ n = 1000 }, { n = 300 }]
// grid = "n // block"
// block = 256
// require = ["n >= 256"]
// reference = "x * 2"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void twice(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 2.0f;
}
void run(const float *x, float *y, int n) { twice<<<n / 256, 256>>>(x, y, n); }
"""


def test_the_grid_rounds_up_in_the_contract_and_in_the_files_launch(mended) -> None:
    best = mended(TWICE, REPAIR)
    assert best.candidate.contract.grid == ("cdiv(n, block)",)
    text = best.candidate.kernel.unit.text
    assert '// grid = "cdiv(n, block)"' in text
    assert "twice<<<n / 256, 256>>>" not in text


def test_a_grid_that_rounds_up_is_left_alone(texts, search) -> None:
    assert search(texts["row"].replace("k > 0", "k > 1"), REPAIR).candidates == ()


def test_a_division_inside_another_function_rounds_up_too(mended) -> None:
    source = TWICE.replace('"n // block"', '"max(1, n // block)"').replace('// require = ["n >= 256"]\n', "")
    assert mended(source, REPAIR).candidate.contract.grid == ("max(1, cdiv(n, block))",)
