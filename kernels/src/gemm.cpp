// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>

#include <array>
#include <hybridstate/kernels/launch/gemm.hpp>
#include <map>

HYBRIDSTATE_NAMESPACE_BEGIN
namespace kernels {
namespace {

constexpr std::uint32_t alignment = 16;

cudaError_t as_cuda(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return cudaSuccess;
    case CUBLAS_STATUS_INVALID_VALUE:
      return cudaErrorInvalidValue;
    case CUBLAS_STATUS_ALLOC_FAILED:
      return cudaErrorMemoryAllocation;
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return cudaErrorLaunchFailure;
    default:
      return cudaErrorNotSupported;
  }
}

/// Owns a descriptor of cuBLASLt.
template <class D, auto Destroy>
struct Descriptor {
  Descriptor() = default;
  ~Descriptor() {
    if (of != nullptr) Destroy(of);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  D of = nullptr;
};

/// The product in cuBLASLt's terms, where matrices are stored by columns: a row of weights is a
/// column of A, which is transposed, and tokens are columns of B and of the result.
struct Product {
  Descriptor<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> operation;
  Descriptor<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> a, b, y;

  cublasStatus_t describe(std::uint32_t rows, std::uint32_t columns, std::uint32_t tokens,
                          std::int64_t x_stride, std::int64_t y_stride) {
    cublasOperation_t const transposed = CUBLAS_OP_T;
    auto status = cublasLtMatmulDescCreate(&operation.of, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatmulDescSetAttribute(operation.of, CUBLASLT_MATMUL_DESC_TRANSA,
                                              &transposed, sizeof transposed);
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatrixLayoutCreate(&a.of, CUDA_R_16BF, columns, rows, columns);
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatrixLayoutCreate(&b.of, CUDA_R_16BF, columns, tokens, x_stride);
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatrixLayoutCreate(&y.of, CUDA_R_32F, rows, tokens, y_stride);
    return status;
  }
};

/// What algorithms may take for granted, and need.
struct Preference {
  Descriptor<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> of;

  cublasStatus_t describe() {
    std::uint64_t const workspace = Gemm::workspace_bytes;
    std::uint32_t const no_reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
    auto status = cublasLtMatmulPreferenceCreate(&of.of);
    auto const set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(of.of, attribute, &value, sizeof value);
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, no_reduction);
    for (auto const matrix :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      set(matrix, alignment);
    return status;
  }
};

bool splits_columns(const cublasLtMatmulAlgo_t& algorithm) {
  std::int32_t splits = 0;
  std::size_t written = 0;
  auto const status = cublasLtMatmulAlgoConfigGetAttribute(
      &algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, sizeof splits, &written);
  return status != CUBLAS_STATUS_SUCCESS || splits > 1;
}

bool aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % alignment == 0; }
bool aligned(std::int64_t elements, std::size_t element) {
  return static_cast<std::uint64_t>(elements) * element % alignment == 0;
}

}  // namespace

struct Gemm::State {
  using Key = std::array<std::uint32_t, 3>;  // rows, columns, bucket

  State() : status(cublasLtCreate(&handle)) {}
  ~State() {
    if (status == CUBLAS_STATUS_SUCCESS) cublasLtDestroy(handle);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// The algorithm of a shape, looked for once.
  cublasStatus_t find(std::uint32_t rows, std::uint32_t columns, std::uint32_t tokens,
                      const cublasLtMatmulAlgo_t** found) {
    std::uint32_t bucket = 0;
    for (std::uint32_t const b : gemm_buckets) {
      bucket = b;
      if (tokens <= b) break;
    }
    Key const key{rows, columns, bucket};
    auto at = algorithms.find(key);
    if (at == algorithms.end()) {
      cublasLtMatmulAlgo_t chosen;
      cublasStatus_t const asked = ask(key, &chosen);
      if (asked != CUBLAS_STATUS_SUCCESS) return asked;
      at = algorithms.emplace(key, chosen).first;
    }
    *found = &at->second;
    return CUBLAS_STATUS_SUCCESS;
  }

  cublasLtHandle_t handle = nullptr;
  cublasStatus_t status;
  std::map<Key, cublasLtMatmulAlgo_t> algorithms;

 private:
  cublasStatus_t ask(const Key& key, cublasLtMatmulAlgo_t* chosen) const {
    auto const [rows, columns, tokens] = key;
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    Product product;
    Preference preference;
    cublasStatus_t s = product.describe(rows, columns, tokens, columns, rows);
    if (s == CUBLAS_STATUS_SUCCESS) s = preference.describe();
    if (s != CUBLAS_STATUS_SUCCESS) return s;
    std::array<cublasLtMatmulHeuristicResult_t, 16> proposals{};
    int count = 0;
    s = cublasLtMatmulAlgoGetHeuristic(
        handle, product.operation.of, product.a.of, product.b.of, product.y.of, product.y.of,
        preference.of.of, static_cast<int>(proposals.size()), proposals.data(), &count);
    if (s != CUBLAS_STATUS_SUCCESS) return s;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      if (proposals[i].state == CUBLAS_STATUS_SUCCESS && !splits_columns(proposals[i].algo)) {
        *chosen = proposals[i].algo;
        return CUBLAS_STATUS_SUCCESS;
      }
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
};

Gemm::Gemm() : state_(std::make_unique<State>()) {}
Gemm::~Gemm() = default;

cudaError_t Gemm::prepare(std::uint32_t rows, std::uint32_t columns, std::uint32_t tokens) {
  const cublasLtMatmulAlgo_t* algorithm = nullptr;
  return as_cuda(state_->find(rows, columns, tokens, &algorithm));
}

cudaError_t Gemm::run(const GemmRows& job, void* workspace, cudaStream_t stream) {
  if (job.columns == 0 || !aligned(job.weights) || !aligned(job.x) || !aligned(job.y) ||
      !aligned(job.columns, sizeof(Bf16)) || !aligned(job.x_stride, sizeof(Bf16)) ||
      !aligned(job.y_stride, sizeof(float)) || job.x_stride < std::int64_t{job.columns} ||
      job.y_stride < std::int64_t{job.rows} || workspace == nullptr ||
      reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0)
    return cudaErrorInvalidValue;
  if (job.tokens == 0 || job.rows == 0) return cudaSuccess;
  const cublasLtMatmulAlgo_t* algorithm = nullptr;
  Product product;
  cublasStatus_t s = state_->find(job.rows, job.columns, job.tokens, &algorithm);
  if (s == CUBLAS_STATUS_SUCCESS)
    s = product.describe(job.rows, job.columns, job.tokens, job.x_stride, job.y_stride);
  float const none = 0;
  if (s == CUBLAS_STATUS_SUCCESS)
    s = cublasLtMatmul(state_->handle, product.operation.of, &job.scale, job.weights, product.a.of,
                       job.x, product.b.of, &none, job.y, product.y.of, job.y, product.y.of,
                       algorithm, workspace, workspace_bytes, stream);
  return as_cuda(s);
}

}  // namespace kernels
HYBRIDSTATE_NAMESPACE_END
