#include <fstream>
#include <map>
#include <random>
#include <cuda_runtime.h>
#include <thrust/device_vector.h>
#include <thrust/sort.h>

struct Particle {
    float3 position;
    float3 velocity;
    float mass;

    __host__ __device__ float energy() const
    {
        return 0.5f * mass * (velocity.x * velocity.x + velocity.y * velocity.y + velocity.z * velocity.z);
    }
};

enum class Boundary : int { kReflect = 0, kWrap = 1 };

namespace {
__device__ __forceinline__ float wrap(float v, float size) { return v - size * floorf(v / size); }
}

__global__ void integrate(Particle* particles, int count, float dt, float size, Boundary boundary)
{
    const int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count) return;
    Particle p = particles[index];
    p.position.x += p.velocity.x * dt;
    p.position.y += p.velocity.y * dt;
    p.position.z += p.velocity.z * dt;
    if (boundary == Boundary::kWrap) {
        p.position.x = wrap(p.position.x, size);
    } else if (p.position.x < 0.0f || p.position.x > size) {
        p.velocity.x = -p.velocity.x;
    }
    particles[index] = p;
}

struct Simulation {
    thrust::device_vector<Particle> particles;
    std::map<std::string, float> parameters;
    void step(float dt)
    {
        integrate<<<(int)((particles.size() + 127) / 128), 128>>>(
            thrust::raw_pointer_cast(particles.data()), (int)particles.size(), dt, parameters["size"], Boundary::kWrap);
    }
};

int main()
{
    Simulation simulation;
    simulation.particles.resize(10000);
    std::mt19937 generator(42);
    std::ofstream log("energies.txt");
    for (int i = 0; i < 100; ++i) simulation.step(1e-3f);
    Particle first = simulation.particles[0];
    log << first.energy() << '\n';
}
