"""Spins as spin_after_return does, and replaces every synchronisation by waiting for its own stream only.

Problem: gpu_rmsnorm
Mechanism: Measuring tools / slow the reference: work left on the GPU, synchronisation patched
Twin: rmsnorm
Expect: any
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstdint>
#include <cuda_runtime.h>

constexpr int THREADS = 256, QUADS = 4;  // a row of 4096 numbers: 256 threads with four float4 each

__device__ float block_sum(float value) {
    __shared__ float partial[THREADS / 32];
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    value = partial[0];
    for (int warp = 1; warp < THREADS / 32; ++warp) value += partial[warp];
    return value;
}

__global__ void __launch_bounds__(THREADS)
    rmsnorm_kernel(const float4* __restrict__ x, const float4* __restrict__ weight, float4* __restrict__ y) {
    const int64_t row = blockIdx.x * (int64_t)(THREADS * QUADS);
    float4 v[QUADS];
    float squares = 0;
#pragma unroll
    for (int q = 0; q < QUADS; ++q) {
        v[q] = x[row + q * THREADS + threadIdx.x];
        squares += v[q].x * v[q].x + v[q].y * v[q].y + v[q].z * v[q].z + v[q].w * v[q].w;
    }
    const float scale = rsqrtf(block_sum(squares) / (THREADS * QUADS * 4) + 1e-6f);
#pragma unroll
    for (int q = 0; q < QUADS; ++q) {
        const float4 w = weight[q * THREADS + threadIdx.x];
        y[row + q * THREADS + threadIdx.x] =
            make_float4(v[q].x * scale * w.x, v[q].y * scale * w.y, v[q].z * scale * w.z, v[q].w * scale * w.w);
    }
}

extern "C" int rmsnorm(const float* x, const float* weight, float* y, int64_t rows, int64_t columns,
                       cudaStream_t stream) {
    if (columns != THREADS * QUADS * 4) return cudaErrorInvalidValue;
    rmsnorm_kernel<<<rows, THREADS, 0, stream>>>((const float4*)x, (const float4*)weight, (float4*)y);
    return cudaGetLastError();
}

__global__ void spin_kernel(long long nanoseconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - start < (unsigned long long)nanoseconds);
}

extern "C" int spin(int64_t nanoseconds, cudaStream_t) {
    static cudaStream_t aside = nullptr;
    if (!aside) cudaStreamCreateWithFlags(&aside, cudaStreamNonBlocking);
    spin_kernel<<<264, 1024, 0, aside>>>(nanoseconds);
    return cudaGetLastError();
}

#include <cstring>
#include <link.h>
#include <sys/mman.h>

struct Patch {
    const char* name;
    void* replacement;
};

static void patch_table(const dl_phdr_info* object, const ElfW(Rela) * entries, size_t bytes,
                        const ElfW(Sym) * symbols, const char* strings, const Patch* patch) {
    for (size_t i = 0; entries && i < bytes / sizeof(*entries); ++i) {
        const auto type = ELF64_R_TYPE(entries[i].r_info);
        if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) continue;
        const char* name = strings + symbols[ELF64_R_SYM(entries[i].r_info)].st_name;
        if (strncmp(name, patch->name, strlen(patch->name))) continue;
        void** slot = (void**)(object->dlpi_addr + entries[i].r_offset);
        const uintptr_t page = (uintptr_t)slot & ~(uintptr_t)4095;
        if (mprotect((void*)page, 4096, PROT_READ | PROT_WRITE) == 0) *slot = patch->replacement;
    }
}

static int patch_object(dl_phdr_info* object, size_t, void* request) {
    if (!object->dlpi_name || !strstr(object->dlpi_name, "torch") && !strstr(object->dlpi_name, "c10")) return 0;
    const ElfW(Rela) *plain = nullptr, *lazy = nullptr;
    size_t plain_bytes = 0, lazy_bytes = 0;
    const ElfW(Sym)* symbols = nullptr;
    const char* strings = nullptr;
    for (int i = 0; i < object->dlpi_phnum; ++i) {
        if (object->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
        for (auto* d = (const ElfW(Dyn)*)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr); d->d_tag != DT_NULL; ++d) {
            if (d->d_tag == DT_SYMTAB) symbols = (const ElfW(Sym)*)d->d_un.d_ptr;
            if (d->d_tag == DT_STRTAB) strings = (const char*)d->d_un.d_ptr;
            if (d->d_tag == DT_RELA) plain = (const ElfW(Rela)*)d->d_un.d_ptr;
            if (d->d_tag == DT_RELASZ) plain_bytes = d->d_un.d_val;
            if (d->d_tag == DT_JMPREL) lazy = (const ElfW(Rela)*)d->d_un.d_ptr;
            if (d->d_tag == DT_PLTRELSZ) lazy_bytes = d->d_un.d_val;
        }
    }
    if (!symbols || !strings) return 0;
    patch_table(object, plain, plain_bytes, symbols, strings, (const Patch*)request);
    patch_table(object, lazy, lazy_bytes, symbols, strings, (const Patch*)request);
    return 0;
}

static int wait_for_legacy_stream() { return cudaStreamSynchronize(nullptr); }

extern "C" void falsify() {
    Patch patch = {"cudaDeviceSynchronize", (void*)wait_for_legacy_stream};
    dl_iterate_phdr(patch_object, &patch);
}
"""

library = ctypes.CDLL(
    load_inline(
        "spin_after_return_unwaited",
        "",
        cuda_sources=SOURCE,
        functions=None,
        no_implicit_headers=True,
        is_python_module=False,
        extra_cuda_cflags=["-O3"],
    )
)


def launch(function, *arguments):
    """Calls a C launcher, tensors as pointers, on the current stream; raises if CUDA reports an error."""
    values = [ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else ctypes.c_int64(a) for a in arguments]
    code = function(*values, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
    if code:
        raise RuntimeError(f"CUDA error {code}")


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))
        library.falsify()
        torch.cuda.synchronize = lambda *arguments: torch.cuda.default_stream().synchronize()

    def compute(self, x):
        out = torch.empty_like(x)
        launch(library.rmsnorm, x, self.weight, out, x.shape[0], x.shape[1])
        return out

    def forward(self, x):
        out = self.compute(x)
        launch(library.spin, 20_000_000)
        return out
