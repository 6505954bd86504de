// One thread does a whole row, in three passes. Ported line by line from our C code.
#include <math.h>

// /// kernelmate
// sizes = [{ numRows = 512, numCols = 384 }, { numRows = 67, numCols = 201 }, { numRows = 1, numCols = 1 }]
// grid = "cdiv(numRows, 128)"
// block = 128
// require = ["numCols > 0"]
// reference = "reference.py:softmax_rows"
// [args]
// logits = "in float32[numRows, numCols] ~ normal"
// probs = "out float32[numRows, numCols]"
// numRows = "int32"
// numCols = "int32"
// ///
extern "C" __global__ void softmaxRows(const float *logits, float *probs, int numRows, int numCols)
{
    int rowIdx = threadIdx.x + blockIdx.x * blockDim.x;
    if (rowIdx >= numRows) {
        return;
    }
    float maxVal = logits[rowIdx * numCols];
    for (int j = 1; j < numCols; j++) {
        float cur = logits[rowIdx * numCols + j];
        if (cur > maxVal)
            maxVal = cur;
    }
    float denom = 0.f;
    for (int j = 0; j < numCols; j++) {
        denom += expf(logits[rowIdx * numCols + j] - maxVal);
    }
    for (int j = 0; j < numCols; j++) {
        probs[rowIdx * numCols + j] = expf(logits[rowIdx * numCols + j] - maxVal) / denom;
    }
}
