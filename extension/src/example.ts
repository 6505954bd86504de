/** A kernel to try things on: a row sum that keeps more in shared memory than it needs. */

import * as vscode from "vscode";

const EXAMPLE = `\
// Sums each row of a matrix, one block per row. Choose "Benchmark" above the kernel, then "Optimize...".

// /// kernelmate
// sizes = [{ rows = 64, cols = 1024 }, { rows = 37, cols = 853 }, { rows = 1, cols = 1 }]
// grid = "rows"
// block = 256
// reference = "x.sum(axis=1)"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows]"
// cols = "int32"
// ///
__global__ void row_sum(const float* x, float* y, int cols) {
    __shared__ float part[256];
    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        sum += x[(size_t)blockIdx.x * cols + c];
    }
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            part[threadIdx.x] += part[threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        y[blockIdx.x] = part[0];
    }
}
`;

/** Open it as a document that is not saved anywhere; beside the walkthrough, which stays in view with its next steps. */
export async function newExample(): Promise<void> {
  const document = await vscode.workspace.openTextDocument({ language: "cuda-cpp", content: EXAMPLE });
  const other = vscode.window.activeTextEditor === undefined && vscode.window.tabGroups.activeTabGroup.activeTab !== undefined;
  await vscode.window.showTextDocument(document, other ? vscode.ViewColumn.Beside : vscode.ViewColumn.Active);
}
