// Softmax über Zeilen verschiedener Länge. Hinter laenge[z] steht Füllung, dort kommt 0 hin.
// Ein Thread macht eine ganze Zeile.

// /// kernelmate
// sizes = [{ zeilen = 384, breite = 128 }, { zeilen = 61, breite = 43 }, { zeilen = 1, breite = 1 }]
// grid = "cdiv(zeilen, block)"
// block = 64
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
    int z = blockIdx.x * blockDim.x + threadIdx.x;
    if (z >= zeilen)
        return;

    int gueltig = laenge[z];
    float groesste = -3.0e38f;
    for (int s = 0; s < gueltig; s++) {
        if (eingabe[z * breite + s] > groesste)
            groesste = eingabe[z * breite + s];
    }

    float summe = 0.0f;
    for (int s = 0; s < gueltig; s++)
        summe += expf(eingabe[z * breite + s] - groesste);

    for (int s = 0; s < breite; s++) {
        if (s < gueltig)
            ausgabe[z * breite + s] = expf(eingabe[z * breite + s] - groesste) / summe;
        else
            ausgabe[z * breite + s] = 0.0f;
    }
}
