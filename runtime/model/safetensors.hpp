// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/dtype.hpp"
#include "model/model_error.hpp"

namespace hybridstate::runtime {

/// Up to four dimensions, the last one fastest.
struct TensorShape {
  std::array<std::uint64_t, 4> dims{};
  std::uint32_t rank = 0;

  TensorShape() = default;
  TensorShape(std::initializer_list<std::uint64_t> sizes) noexcept;

  /// The product of the dimensions. Precondition: it fits into 64 bits, as in every tensor of an
  /// opened file.
  std::uint64_t elements() const noexcept;
  std::string text() const;  ///< "[64, 1, 4]"

  friend bool operator==(const TensorShape&, const TensorShape&) = default;
};

/// A tensor where it lies in the mapped file; `data` is aligned to one element.
struct TensorView {
  const void* data = nullptr;
  Dtype dtype = Dtype::bf16;
  TensorShape shape;

  explicit operator bool() const noexcept { return data != nullptr; }
  std::uint64_t elements() const noexcept { return shape.elements(); }
  std::uint64_t bytes() const noexcept { return elements() * dtype_bytes(dtype); }
  float at(std::size_t i) const noexcept { return element_as_float(data, dtype, i); }
};

/// One entry of a safetensors header; the offsets count from the end of the header.
struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::bf16;
  TensorShape shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// What a safetensors file declares, checked: every tensor lies inside the file, in bytes of its
/// own that its shape and dtype account for, aligned to its elements, and no byte is left over.
struct SafetensorsHeader {
  std::uint64_t data_start = 0;      ///< of the first tensor byte in the file
  std::vector<TensorEntry> tensors;  ///< by name
};

/// Reads the header of a whole file in memory; `label` is its name in messages. Throws ModelError
/// on anything malformed; reads no byte outside `file`.
SafetensorsHeader read_safetensors_header(std::span<const std::byte> file,
                                          const std::string& label);

/// A file mapped for reading. It must not be truncated while it is mapped.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The tensors of a folder: model.safetensors, or the shards that model.safetensors.index.json
/// lists. Views stay valid while the checkpoint lives, also after it was moved.
class Checkpoint {
 public:
  struct Tensor {
    std::string name;
    TensorView view;
    std::uint32_t file = 0;  ///< index into files()
  };

  /// Throws ModelError.
  static Checkpoint open(const std::filesystem::path& folder);

  /// The tensor of that name, or null.
  const Tensor* find(std::string_view name) const noexcept;
  const std::vector<Tensor>& tensors() const noexcept { return tensors_; }  ///< by name
  const std::vector<std::string>& files() const noexcept { return files_; }
  std::uint64_t bytes() const noexcept { return bytes_; }  ///< of all tensors

 private:
  void add(const std::filesystem::path& path);
  void finish();

  std::vector<MappedFile> maps_;
  std::vector<std::string> files_;
  std::vector<Tensor> tensors_;
  std::uint64_t bytes_ = 0;
};

}  // namespace hybridstate::runtime
