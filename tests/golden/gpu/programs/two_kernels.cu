// Two kernels for Nsight Compute: an addition of two vectors, and a sum by blocks in shared memory.
#include <cstdio>

__global__ void add_vectors(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}

__global__ void sum_blocks(const float *a, float *sums) {
    __shared__ float part[256];
    part[threadIdx.x] = a[blockIdx.x * 256 + threadIdx.x];
    __syncthreads();
    for (int half = 128; half; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (!threadIdx.x)
        sums[blockIdx.x] = part[0];
}

int main() {
    const int n = 1 << 20;
    float *a, *b, *c, *sums, first, ms[2];
    cudaEvent_t marks[3];
    cudaMalloc(&a, 4 * n), cudaMalloc(&b, 4 * n), cudaMalloc(&c, 4 * n), cudaMalloc(&sums, 4 * n / 256);
    cudaMemset(a, 0, 4 * n), cudaMemset(b, 0, 4 * n);
    for (auto &mark : marks)
        cudaEventCreate(&mark);
    cudaEventRecord(marks[0]);
    add_vectors<<<n / 256, 256>>>(a, b, c, n);
    cudaEventRecord(marks[1]);
    sum_blocks<<<n / 256, 256>>>(c, sums);
    cudaEventRecord(marks[2]);
    cudaMemcpy(&first, sums, 4, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 2; i++)
        cudaEventElapsedTime(ms + i, marks[i], marks[i + 1]);
    printf("{\"first\": %g, \"add_vectors_ms\": %.6f, \"sum_blocks_ms\": %.6f, \"blocks\": %d, \"threads\": 256}\n", first,
           ms[0], ms[1], n / 256);
    return cudaGetLastError();
}
