// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "error_text.hpp"
#include "model/model_json.hpp"

namespace hybridstate::runtime {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::uint64_t largest_header = 100'000'000;  // the limit of the format's own readers
constexpr std::size_t largest_index = std::size_t{64} << 20;
constexpr std::uint64_t length_bytes = 8;

/// Builds the entries while the header is parsed: no tree of values, whatever the header holds.
class HeaderHandler {
 public:
  HeaderHandler(const std::string& label, std::vector<TensorEntry>& tensors)
      : label_(label), tensors_(tensors) {}

  // The events of the parser; false is never returned, failures throw.
  bool null() { return scalar("null"); }
  bool boolean(bool) { return scalar("true or false"); }
  bool number_integer(Json::number_integer_t) { return scalar("a negative number"); }
  bool number_float(Json::number_float_t, const Json::string_t&) {
    return scalar("a number that is not a whole number below 2^64");
  }
  bool binary(Json::binary_t&) { return scalar("binary data"); }

  bool number_unsigned(Json::number_unsigned_t number) {
    if (place_ == Place::shape) {
      if (entry_.shape.rank == entry_.shape.dims.size())
        fail("has more than {} dimensions, but no tensor of this model has", entry_.shape.rank);
      entry_.shape.dims[entry_.shape.rank++] = number;
      return true;
    }
    if (place_ == Place::offsets) {
      if (offsets_ == 2) fail("has more than two data_offsets, but they must be begin and end");
      (offsets_++ == 0 ? entry_.begin : entry_.end) = number;
      return true;
    }
    return scalar("a number");
  }

  bool string(Json::string_t& text) {
    if (place_ == Place::metadata) return true;
    if (place_ == Place::tensor && field_ == Field::dtype) {
      if (text == "BF16")
        entry_.dtype = Dtype::bf16;
      else if (text == "F16")
        entry_.dtype = Dtype::f16;
      else if (text == "F32")
        entry_.dtype = Dtype::f32;
      else
        fail("has the dtype {}, but only BF16, F16 and F32 are supported", quoted_name(text));
      field_ = Field::none;
      return true;
    }
    return scalar("a string");
  }

  bool start_object(std::size_t) {
    if (place_ == Place::before) {
      place_ = Place::top;
    } else if (place_ == Place::top) {
      place_ = metadata_name_ ? Place::metadata : Place::tensor;
    } else {
      return scalar("an object");
    }
    return true;
  }

  bool key(Json::string_t& name) {
    if (place_ == Place::top) {
      metadata_name_ = name == "__metadata__";
      entry_ = {};
      entry_.name = name;
      seen_ = 0;
      offsets_ = 0;
      field_ = Field::none;
    } else if (place_ == Place::tensor) {
      if (name == "dtype")
        field_ = Field::dtype;
      else if (name == "shape")
        field_ = Field::shape;
      else if (name == "data_offsets")
        field_ = Field::offsets;
      else
        fail("has the unknown field {}; it must have dtype, shape and data_offsets",
             quoted_name(name));
      unsigned const bit = 1U << static_cast<unsigned>(field_);
      if ((seen_ & bit) != 0) fail("has the field {} twice", quoted_name(name));
      seen_ |= bit;
    }
    return true;
  }

  bool end_object() {
    if (place_ == Place::tensor) {
      for (Field const field : {Field::dtype, Field::shape, Field::offsets})
        if ((seen_ & (1U << static_cast<unsigned>(field))) == 0)
          fail("has no {}", field == Field::dtype   ? "dtype"
                            : field == Field::shape ? "shape"
                                                    : "data_offsets");
      tensors_.push_back(std::move(entry_));
    }
    place_ = place_ == Place::top ? Place::after : Place::top;
    return true;
  }

  bool start_array(std::size_t) {
    if (place_ == Place::tensor && field_ == Field::shape)
      place_ = Place::shape;
    else if (place_ == Place::tensor && field_ == Field::offsets)
      place_ = Place::offsets;
    else
      return scalar("a list");
    return true;
  }

  bool end_array() {
    if (place_ == Place::offsets && offsets_ != 2)
      fail("has {} data_offsets, but they must be begin and end", offsets_);
    place_ = Place::tensor;
    field_ = Field::none;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) {
    if (dynamic_cast<const Json::parse_error*>(&error) != nullptr)
      throw ModelError(
          fmt::format("{}: the header is not valid JSON at byte {}; the file is damaged, get it "
                      "again",
                      label_, length_bytes + (position == 0 ? 0 : position - 1)));
    return scalar("a number beyond every range");
  }

 private:
  enum class Place : std::uint8_t { before, top, metadata, tensor, shape, offsets, after };
  enum class Field : std::uint8_t { none, dtype, shape, offsets };

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw ModelError(fmt::format("{}: tensor {} {}", label_, quoted_name(entry_.name),
                                 fmt::format(format, std::forward<Args>(args)...)));
  }

  /// A value where none of its kind belongs.
  bool scalar(const char* what) const {
    switch (place_) {
      case Place::before:
      case Place::after:
        throw ModelError(
            fmt::format("{}: the header holds {} instead of an object of tensors", label_, what));
      case Place::top:
      case Place::metadata:
        if (place_ == Place::metadata || metadata_name_)
          throw ModelError(fmt::format(
              "{}: __metadata__ holds {}, but it must be an object of strings", label_, what));
        fail("is {} instead of an object with dtype, shape and data_offsets", what);
      case Place::shape:
        fail("has {} in its shape, but a dimension must be a whole number below 2^64", what);
      case Place::offsets:
        fail("has {} in its data_offsets, but they must be whole numbers below 2^64", what);
      case Place::tensor:
        break;
    }
    fail("has {} as its {}", what,
         field_ == Field::dtype   ? "dtype, but it must be a string"
         : field_ == Field::shape ? "shape, but it must be a list of whole numbers"
                                  : "data_offsets, but they must be a list of two whole numbers");
  }

  const std::string& label_;
  std::vector<TensorEntry>& tensors_;
  Place place_ = Place::before;
  Field field_ = Field::none;
  bool metadata_name_ = false;
  unsigned seen_ = 0;
  unsigned offsets_ = 0;
  TensorEntry entry_;
};

/// Whether a * b fits; the product goes to `a`.
bool multiply(std::uint64_t& a, std::uint64_t b) noexcept {
  if (b != 0 && a > ~std::uint64_t{0} / b) return false;
  a *= b;
  return true;
}

void check_entry(const TensorEntry& t, const std::string& label, std::uint64_t data_start,
                 std::uint64_t data_bytes) {
  if (t.begin > t.end)
    throw ModelError(fmt::format("{}: tensor {} has the data_offsets [{}, {}], which run backwards",
                                 label, quoted_name(t.name), t.begin, t.end));
  if (t.end > data_bytes)
    throw ModelError(fmt::format(
        "{}: tensor {} ends at byte {} of the data, but the file has only {} bytes of data; it is "
        "truncated, get it again",
        label, quoted_name(t.name), t.end, data_bytes));
  std::uint64_t bytes = dtype_bytes(t.dtype);
  bool fits = true;
  bool empty = false;
  for (std::uint32_t i = 0; i < t.shape.rank; ++i) {
    empty = empty || t.shape.dims[i] == 0;
    fits = fits && multiply(bytes, t.shape.dims[i]);
  }
  if (empty || !fits)
    throw ModelError(fmt::format("{}: tensor {} has the shape {}, which {}", label,
                                 quoted_name(t.name), t.shape.text(),
                                 empty ? "has no element" : "needs more bytes than 64 bits count"));
  if (bytes != t.end - t.begin)
    throw ModelError(fmt::format("{}: tensor {} has {} bytes of data, but shape {} of {} needs {}",
                                 label, quoted_name(t.name), t.end - t.begin, t.shape.text(),
                                 dtype_name(t.dtype), bytes));
  if ((data_start + t.begin) % dtype_bytes(t.dtype) != 0)
    throw ModelError(fmt::format(
        "{}: tensor {} begins at byte {} of the file, which is no multiple of its {}-byte "
        "elements; save the file again with a current safetensors",
        label, quoted_name(t.name), data_start + t.begin, dtype_bytes(t.dtype)));
}

/// Every byte of the data belongs to exactly one tensor.
void check_coverage(const std::vector<TensorEntry>& tensors, const std::string& label,
                    std::uint64_t data_bytes) {
  std::vector<const TensorEntry*> order;
  order.reserve(tensors.size());
  for (TensorEntry const& t : tensors) order.push_back(&t);
  std::sort(order.begin(), order.end(), [](const TensorEntry* a, const TensorEntry* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
  });
  std::uint64_t covered = 0;
  const TensorEntry* before = nullptr;
  for (const TensorEntry* const t : order) {
    if (t->begin < covered)
      throw ModelError(fmt::format("{}: tensors {} and {} share bytes {} to {} of the data", label,
                                   quoted_name(before->name), quoted_name(t->name), t->begin,
                                   std::min(covered, t->end)));
    if (t->begin > covered)
      throw ModelError(
          fmt::format("{}: bytes {} to {} of the data, before tensor {}, belong to no "
                      "tensor; the file is damaged, get it again",
                      label, covered, t->begin, quoted_name(t->name)));
    covered = t->end;
    before = t;
  }
  if (covered != data_bytes)
    throw ModelError(
        fmt::format("{}: the file has {} bytes of data, but its tensors end at {}; it is damaged, "
                    "get it again",
                    label, data_bytes, covered));
}

}  // namespace

TensorShape::TensorShape(std::initializer_list<std::uint64_t> sizes) noexcept {
  for (std::uint64_t const size : sizes)
    if (rank < dims.size()) dims[rank++] = size;
}

std::uint64_t TensorShape::elements() const noexcept {
  std::uint64_t product = 1;
  for (std::uint32_t i = 0; i < rank; ++i) product *= dims[i];
  return product;
}

std::string TensorShape::text() const {
  return fmt::format("[{}]", fmt::join(dims.begin(), dims.begin() + rank, ", "));
}

SafetensorsHeader read_safetensors_header(std::span<const std::byte> file,
                                          const std::string& label) {
  if (file.size() < length_bytes)
    throw ModelError(fmt::format(
        "{}: has {} bytes, but a safetensors file begins with the 8 bytes of its header's length",
        label, file.size()));
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  if (length > largest_header || length < 2)
    throw ModelError(fmt::format(
        "{}: the header's length is {}, but it must be from 2 to {}; this is no safetensors file",
        label, length, largest_header));
  if (length > file.size() - length_bytes)
    throw ModelError(
        fmt::format("{}: the header's length is {}, but only {} bytes follow; the file is "
                    "truncated, get it again",
                    label, length, file.size() - length_bytes));
  SafetensorsHeader header;
  header.data_start = length_bytes + length;
  const auto* const text = reinterpret_cast<const char*>(file.data()) + length_bytes;
  if (*text != '{')
    throw ModelError(
        fmt::format("{}: the header must begin with a brace; the file is damaged, get "
                    "it again",
                    label));
  HeaderHandler handler(label, header.tensors);
  Json::sax_parse(text, text + length, &handler);

  std::vector<TensorEntry>& tensors = header.tensors;
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) { return a.name < b.name; });
  std::uint64_t const data_bytes = file.size() - header.data_start;
  for (TensorEntry const& t : tensors) check_entry(t, label, header.data_start, data_bytes);
  for (std::size_t i = 1; i < tensors.size(); ++i)
    if (tensors[i].name == tensors[i - 1].name)
      throw ModelError(
          fmt::format("{}: tensor {} is there twice", label, quoted_name(tensors[i].name)));
  check_coverage(tensors, label, data_bytes);
  return header;
}

MappedFile::MappedFile(const fs::path& path) {
  auto const fail = [&](const std::string& why) -> ModelError {
    return ModelError(fmt::format("{}: {}", path.string(), why));
  };
  int const descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) throw fail(fmt::format("cannot be opened: {}", error_text(errno)));
  struct stat status{};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    throw fail("is not a file that can be mapped; give a safetensors file");
  }
  auto const size = static_cast<std::size_t>(status.st_size);
  if (size == 0) {
    ::close(descriptor);
    throw fail("is empty; it is truncated, get it again");
  }
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  int const error = errno;
  ::close(descriptor);
  if (data == MAP_FAILED) throw fail(fmt::format("cannot be mapped: {}", error_text(error)));
#if defined(MADV_HUGEPAGE)
  // Weights are read from end to end in every step: fewer and larger pages, where the system has
  // them for files.
  ::madvise(data, size, MADV_HUGEPAGE);
#endif
  data_ = static_cast<const std::byte*>(data);
  size_ = size;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void Checkpoint::add(const fs::path& path) {
  std::string const label = path.string();
  MappedFile map(path);
  auto const bytes = map.bytes();
  SafetensorsHeader header = read_safetensors_header(bytes, label);
  auto const file = static_cast<std::uint32_t>(files_.size());
  tensors_.reserve(tensors_.size() + header.tensors.size());
  for (TensorEntry& t : header.tensors) {
    bytes_ += t.end - t.begin;
    tensors_.push_back(
        {std::move(t.name), {bytes.data() + header.data_start + t.begin, t.dtype, t.shape}, file});
  }
  maps_.push_back(std::move(map));
  files_.push_back(label);
}

void Checkpoint::finish() {
  std::sort(tensors_.begin(), tensors_.end(),
            [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  for (std::size_t i = 1; i < tensors_.size(); ++i)
    if (tensors_[i].name == tensors_[i - 1].name)
      throw ModelError(fmt::format("{}: tensor {} is also in {}", files_[tensors_[i].file],
                                   quoted_name(tensors_[i].name), files_[tensors_[i - 1].file]));
}

Checkpoint Checkpoint::open(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    throw ModelError(fmt::format(
        "{}: is not a folder; give one with config.json and model.safetensors", folder.string()));
  Checkpoint checkpoint;
  fs::path const single = folder / "model.safetensors";
  fs::path const index = folder / "model.safetensors.index.json";
  if (fs::exists(single, ignored)) {
    checkpoint.add(single);
    checkpoint.finish();
    return checkpoint;
  }
  if (!fs::exists(index, ignored))
    throw ModelError(fmt::format(
        "{}: has neither model.safetensors nor model.safetensors.index.json; give a model's folder "
        "(or make one: hybridstate make-model)",
        folder.string()));

  std::string const label = index.string();
  Json const root = parse_model_json(
      label, read_model_text(index, largest_index, "the list of a model's shards"));
  auto const listed = root.find("weight_map");
  if (listed == root.end() || !listed->is_object() || listed->empty())
    throw ModelError(fmt::format(
        "{}: field \"weight_map\" must be an object from tensor names to files", label));
  std::map<std::string, std::uint32_t> shards;
  for (auto const& [name, file] : listed->items()) {
    std::string const shard = file.is_string() ? file.get<std::string>() : std::string();
    if (shard.empty() || shard == "." || shard == ".." ||
        shard.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos)
      throw ModelError(
          fmt::format("{}: field \"weight_map\" has {} for {}, but it must be the name "
                      "of a file in the same folder",
                      label, shown_value(file), quoted_name(name)));
    shards.emplace(shard, 0);
  }
  for (auto& [shard, number] : shards) {
    number = static_cast<std::uint32_t>(checkpoint.files_.size());
    checkpoint.add(folder / shard);
  }
  checkpoint.finish();
  for (auto const& [name, file] : listed->items()) {
    auto const& shard = file.get_ref<const std::string&>();
    const Tensor* const tensor = checkpoint.find(name);
    if (tensor == nullptr || tensor->file != shards.at(shard))
      throw ModelError(
          fmt::format("{}: field \"weight_map\" says that {} has tensor {}, but it "
                      "has not",
                      label, quoted_name(shard), quoted_name(name)));
  }
  if (checkpoint.tensors_.size() != listed->size())
    for (Tensor const& tensor : checkpoint.tensors_)
      if (!listed->contains(tensor.name))
        throw ModelError(fmt::format("{}: tensor {} is not in the weight_map of {}",
                                     checkpoint.files_[tensor.file], quoted_name(tensor.name),
                                     label));
  return checkpoint;
}

const Checkpoint::Tensor* Checkpoint::find(std::string_view name) const noexcept {
  auto const at =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const Tensor& t, std::string_view wanted) { return t.name < wanted; });
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

}  // namespace hybridstate::runtime
