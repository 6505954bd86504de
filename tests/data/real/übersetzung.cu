// Größenänderung eines Bildes: 线性插值. Non-ASCII text in comments, strings and a file's name.
#include <cstdio>
#include <string>

/* Ränder werden gespiegelt — „reflect“ */ __device__ int spiegeln(int i, int n) { return i < 0 ? -i : (i >= n ? 2 * n - 2 - i : i); }

__global__ void verkleinern(const unsigned char* bild, unsigned char* ziel, int breite, int hoehe_aus)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x; /* Spalte → */ int y = blockIdx.y;
    if (x >= breite / 2 || y >= hoehe_aus) return;
    int summe = 0;
    for (int d = -1; d <= 1; ++d) summe += bild[(2 * y) * breite + spiegeln(2 * x + d, breite)];
    ziel[y * (breite / 2) + x] = (unsigned char)(summe / 3);
}

int main()
{
    std::string gruss = "Größe: ✓";
    verkleinern<<<dim3(10, 240), 32>>>(nullptr, nullptr, 640, 240);
    std::puts(gruss.c_str());
}
