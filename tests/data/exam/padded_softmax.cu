// Softmax über Zeilen verschiedener Länge. Hinter laenge[z] steht Füllung, dort kommt 0 hin.
// Ein Thread macht eine ganze Zeile.

// /// kernelmate
// sizes = [{ zeilen = 384, breite = 128 }, { zeilen = 61, breite = 43 }, { zeilen = 1, breite = 1 }]
// grid = "cdiv(zeilen, 4)"
// block = 128
// require = ["breite > 0"]
// inputs = "reference.py:make_padded"
// reference = "reference.py:padded_softmax"
// [args]
// eingabe = "in float32[zeilen, breite]"
// laenge = "in int32[zeilen]"
// ausgabe = "out float32[zeilen, breite]"
// zeilen = "int32"
// breite = "int32"
// ///
__global__ void softmaxGepolstert(const float *eingabe, const int *laenge, float *ausgabe, int zeilen, int breite)
{
    int z = blockIdx.x * 4 + threadIdx.x / 32;
    int spur = threadIdx.x % 32;
    if (z >= zeilen)
        return;
    int gueltig = laenge[z];
    float groesste = -3.0e38f;
    for (int s = spur; s < gueltig; s += 32)
        groesste = fmaxf(groesste, eingabe[z * breite + s]);
    for (int d = 16; d > 0; d >>= 1)
        groesste = fmaxf(groesste, __shfl_xor_sync(0xffffffffu, groesste, d));
    float summe = 0.0f;
    for (int s = spur; s < gueltig; s += 32)
        summe += expf(eingabe[z * breite + s] - groesste);
    for (int d = 16; d > 0; d >>= 1)
        summe += __shfl_xor_sync(0xffffffffu, summe, d);
    for (int s = spur; s < breite; s += 32)
        ausgabe[z * breite + s] = s < gueltig ? expf(eingabe[z * breite + s] - groesste) / summe : 0.0f;
}
