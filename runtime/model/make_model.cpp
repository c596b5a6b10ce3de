// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "model/make_model.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <type_traits>
#include <utility>

#include "error_text.hpp"
#include "math/deterministic.hpp"
#include "model/model_json.hpp"
#include "model/weights.hpp"
#include "report/progress.hpp"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

namespace hybridstate::runtime {

namespace {

namespace fs = std::filesystem;

constexpr double deviation = 0.2;
constexpr std::size_t levels = 65536;           // of a normal number: 16 random bits choose one
constexpr std::size_t part_elements = 1 << 20;  // drawn and written at a time
constexpr std::uint64_t data_alignment = 64;

// --- presets ----------------------------------------------------------------------------------

FalconH1Config tiny() {
  FalconH1Config c;
  c.layers = 4;
  c.hidden = 64;
  c.intermediate = 128;
  c.vocabulary = 500;
  c.max_positions = 262144;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 8;
  c.rope_theta = 1e11;
  c.ssm_heads = 24;
  c.ssm_head_dim = 16;
  c.ssm_state = 128;
  c.conv_width = 4;
  c.chunk = 128;
  c.norm_epsilon = 1e-5;
  c.gated_norm = true;
  // All different and none 1, so that a forgotten one shows; activations stay of order 1.
  c.embedding_multiplier = 5.656854249492381;
  c.lm_head_multiplier = 0.5;
  c.attention_in_multiplier = 1.25;
  c.attention_out_multiplier = 0.6;
  c.key_multiplier = 0.75;
  c.ssm_in_multiplier = 0.8;
  c.ssm_out_multiplier = 0.375;
  c.ssm_multipliers = {0.7, 0.9, 1.2, 1.4, 0.55};
  c.gate_multiplier = 0.95;
  c.down_multiplier = 0.65;
  c.bos_id = 1;
  c.eos_ids = {11};
  return c;
}

struct Sizes {
  std::uint32_t layers, hidden, intermediate, heads, kv_heads, head_dim;
  std::uint32_t ssm_heads, ssm_head_dim, ssm_state, ssm_groups;
  std::uint32_t vocabulary, max_positions;
};

FalconH1Config sized(const Sizes& s) {
  FalconH1Config c;
  c.layers = s.layers;
  c.hidden = s.hidden;
  c.intermediate = s.intermediate;
  c.vocabulary = s.vocabulary;
  c.max_positions = s.max_positions;
  c.heads = s.heads;
  c.kv_heads = s.kv_heads;
  c.head_dim = s.head_dim;
  c.rope_theta = 1e11;
  c.ssm_heads = s.ssm_heads;
  c.ssm_head_dim = s.ssm_head_dim;
  c.ssm_state = s.ssm_state;
  c.ssm_groups = s.ssm_groups;
  c.conv_width = 4;
  c.chunk = 128;
  c.norm_epsilon = 1e-5;
  c.gated_norm = true;
  c.bos_id = 1;
  c.eos_ids = {11};
  return c;
}

struct Multipliers {
  double lm_head, key, attention_out, ssm_in, ssm_out, gate, down, ssm_b;
};

FalconH1Config with(FalconH1Config c, const Multipliers& m) {
  c.embedding_multiplier = 5.656854249492381;
  c.lm_head_multiplier = m.lm_head;
  c.key_multiplier = m.key;
  c.attention_out_multiplier = m.attention_out;
  c.ssm_in_multiplier = m.ssm_in;
  c.ssm_out_multiplier = m.ssm_out;
  c.ssm_multipliers = {0.3535533905932738, 0.25, m.ssm_b, 0.5, 0.3535533905932738};
  c.gate_multiplier = m.gate;
  c.down_multiplier = m.down;
  return c;
}

std::vector<FalconPreset> make_presets() {
  FalconH1Config tiny_90m = sized({24, 512, 768, 8, 2, 64, 24, 32, 64, 1, 32768, 262144});
  tiny_90m.gated_norm = false;
  tiny_90m.tied = true;
  tiny_90m.embedding_multiplier = 0.11083984375;
  tiny_90m.lm_head_multiplier = 0.078125;

  FalconH1Config half_b = with(sized({36, 1024, 2048, 8, 2, 64, 24, 64, 128, 1, 32784, 16384}),
                               {0.0390625, 0.39062499999999994, 0.9375, 1.25, 0.23570226039551587,
                                0.8838834764831844, 0.5859375, 0.3535533905932738});
  half_b.gated_norm = false;

  return {
      {"tiny", tiny()},
      {"falcon-h1-tiny-90m", tiny_90m},
      {"falcon-h1-0.5b", half_b},
      {"falcon-h1-1.5b",
       with(sized({24, 2048, 4608, 8, 2, 128, 48, 64, 256, 1, 65537, 131072}),
            {0.01953125, 0.06905339660024878, 0.234375, 0.625, 0.11785113019775793,
             0.4419417382415922, 0.13020833333333331, 0.1767766952966369})},
      {"falcon-h1-1.5b-deep",
       with(sized({66, 1280, 3072, 6, 2, 128, 24, 64, 256, 1, 65537, 131072}),
            {0.03125, 0.17677669529663687, 0.5, 1.0, 0.23570226039551587, 0.7071067811865476,
             0.3125, 0.1767766952966369})},
      {"falcon-h1-3b", with(sized({32, 2560, 6144, 10, 2, 128, 32, 128, 256, 1, 65537, 131072}),
                            {0.015625, 0.04419417382415922, 0.15, 0.5, 0.08838834764831845,
                             0.3535533905932738, 0.078125, 0.1767766952966369})},
      {"falcon-h1-7b",
       with(sized({44, 3072, 12288, 12, 2, 128, 24, 128, 256, 1, 130049, 262144}),
            {0.013020833333333334, 0.030690398488999456, 0.10416666666666667, 0.4166666666666667,
             0.11785113019775793, 0.2946278254943948, 0.032552083333333336, 0.1767766952966369})},
      {"falcon-h1-34b", with(sized({72, 5120, 21504, 20, 4, 128, 32, 128, 256, 2, 261120, 262144}),
                             {0.0078125, 0.011048543456039804, 0.0375, 0.25, 0.08838834764831845,
                              0.1767766952966369, 0.011160714285714284, 0.1767766952966369})},
  };
}

// --- numbers ----------------------------------------------------------------------------------

/// The quantiles of the standard normal distribution at (k + 1/2) / 65,536, by Newton's method on
/// its series, in arithmetic whose bits are the same everywhere.
std::vector<double> compute_quantiles() {
  constexpr double inverse_root_two_pi = 0.3989422804014327;
  constexpr std::size_t half = levels / 2;
  std::vector<double> table(levels);
  double x = 0;
  double density = inverse_root_two_pi;
  double before = 0;
  for (std::size_t i = 0; i < half; ++i) {
    double const target = (static_cast<double>(i) + 0.5) / static_cast<double>(levels);
    x += (target - before) / density;  // from the quantile before along the tangent
    for (int round = 0; round < 6; ++round) {
      double const square = x * x;
      double term = x;
      double sum = x;
      for (double n = 3; term > sum * 0x1p-54; n += 2) {
        term *= square / n;
        sum += term;
      }
      density = inverse_root_two_pi * portable_exp(-0.5 * square);
      double const error = density * sum - target;
      x -= error / density;
      if (error < 0x1p-52 && error > -0x1p-52) break;
    }
    before = target;
    table[half + i] = x;
    table[half - 1 - i] = -x;
  }
  return table;
}

const std::vector<double>& normal_quantiles() {
  static const std::vector<double> table = compute_quantiles();
  return table;
}

template <class T>
T rounded(float value, Dtype dtype) {
  if constexpr (std::is_same_v<T, float>)
    return value;
  else
    return dtype == Dtype::bf16 ? float_to_bf16(value) : float_to_f16(value);
}

/// Draws the elements of one tensor, part by part.
template <class T>
class Drawer {
 public:
  explicit Drawer(Dtype dtype) : dtype_(dtype), quantiles_(normal_quantiles()), scaled_(levels) {
    for (std::size_t k = 0; k < levels; ++k)
      scaled_[k] = rounded<T>(static_cast<float>(deviation * quantiles_[k]), dtype);
  }

  void begin(Draw draw, BitGenerator bits) {
    draw_ = draw;
    bits_ = bits;
    index_ = 0;
  }

  /// Parts but the last have a multiple of four elements.
  void draw(std::span<T> out) {
    if (draw_ != Draw::normal) {
      for (T& element : out) element = rounded<T>(static_cast<float>(next()), dtype_);
      return;
    }
    constexpr std::uint64_t mask = levels - 1;
    const T* const table = scaled_.data();
    std::size_t i = 0;
    for (; i + 4 <= out.size(); i += 4) {
      std::uint64_t const word = bits_.next();
      out[i] = table[word & mask];
      out[i + 1] = table[(word >> 16) & mask];
      out[i + 2] = table[(word >> 32) & mask];
      out[i + 3] = table[word >> 48];
    }
    if (i < out.size())
      for (std::uint64_t word = bits_.next(); i < out.size(); word >>= 16)
        out[i++] = table[word & mask];
  }

 private:
  double next() {
    double const i = static_cast<double>(index_++);
    if (draw_ == Draw::dt_bias) return -4.0 + 4.0 * bits_.uniform();
    double const spread = deviation * quantiles_[bits_.next() >> 48];
    return draw_ == Draw::a_log ? portable_log(1.0 + i) + spread : 1.0 + spread;
  }

  Dtype dtype_;
  const std::vector<double>& quantiles_;
  std::vector<T> scaled_;
  Draw draw_ = Draw::normal;
  BitGenerator bits_{0};
  std::uint64_t index_ = 0;
};

/// FNV-1a; 0, the stream of the bare seed, is left free.
std::uint64_t stream_of(std::string_view name) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (char const c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash == 0 ? 1 : hash;
}

// --- the file ---------------------------------------------------------------------------------

struct PlannedTensor {
  std::string name;
  TensorShape shape;
  Draw draw = Draw::normal;
};

std::vector<PlannedTensor> plan_tensors(const FalconH1Config& config, Dtype dtype) {
  std::vector<PlannedTensor> plan;
  TensorShape const table{config.vocabulary, config.hidden};
  plan.push_back({embedding_name, table, Draw::normal});
  std::vector<LayerTensor> const list = layer_tensors(config);
  for (std::uint32_t l = 0; l < config.layers; ++l)
    for (LayerTensor const& tensor : list)
      plan.push_back({layer_tensor_name(l, tensor), tensor.shape, tensor.draw});
  plan.push_back({final_norm_name, {config.hidden}, Draw::about_one});
  if (!config.tied) plan.push_back({lm_head_name, table, Draw::normal});
  // Whole cache lines first: then every one of these tensors begins on a line.
  std::stable_partition(plan.begin(), plan.end(), [dtype](const PlannedTensor& t) {
    return t.shape.elements() * dtype_bytes(dtype) % data_alignment == 0;
  });
  return plan;
}

std::string header_text(const std::vector<PlannedTensor>& plan, Dtype dtype,
                        const std::string& origin) {
  std::string text = fmt::format(R"({{"__metadata__":{{"format":"pt","origin":{}}})",
                                 nlohmann::json(origin).dump());
  std::uint64_t begin = 0;
  for (PlannedTensor const& t : plan) {
    std::uint64_t const end = begin + t.shape.elements() * dtype_bytes(dtype);
    text += fmt::format(
        R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", t.name, dtype_name(dtype),
        fmt::join(t.shape.dims.begin(), t.shape.dims.begin() + t.shape.rank, ","), begin, end);
    begin = end;
  }
  text += '}';
  while ((text.size() + 8) % data_alignment != 0) text += ' ';
  return text;
}

/// A new file that is written from its beginning to its end.
class NewFile {
 public:
  explicit NewFile(const fs::path& path)
      : name_(path.string()),
        descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0) fail(errno);
  }
  ~NewFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* data, std::size_t bytes) {
    const auto* at = static_cast<const char*>(data);
    while (bytes > 0) {
      ssize_t const n = ::write(descriptor_, at, bytes);
      if (n < 0) {
        if (errno == EINTR) continue;
        fail(errno);
      }
      at += n;
      bytes -= static_cast<std::size_t>(n);
    }
  }
  void close() {
    if (::close(std::exchange(descriptor_, -1)) != 0) fail(errno);
  }

 private:
  [[noreturn]] void fail(int error) const {
    throw ModelError(fmt::format("{}: cannot be written: {}", name_, error_text(error)));
  }

  std::string name_;
  int descriptor_;
};

template <class T>
void write_tensors(NewFile& file, const std::vector<PlannedTensor>& plan,
                   const MakeModelOptions& options) {
  Drawer<T> drawer(options.dtype);
  std::vector<T> part(part_elements);
  for (PlannedTensor const& tensor : plan) {
    drawer.begin(tensor.draw, BitGenerator(options.seed, stream_of(tensor.name)));
    for (std::uint64_t left = tensor.shape.elements(); left > 0;) {
      if (options.stop != nullptr && options.stop->load(std::memory_order_relaxed))
        throw ModelError("interrupted: nothing was written");
      auto const n = static_cast<std::size_t>(std::min<std::uint64_t>(left, part_elements));
      drawer.draw(std::span(part).first(n));
      file.write(part.data(), n * sizeof(T));
      if (options.progress != nullptr) options.progress->advance(n * sizeof(T));
      left -= n;
    }
  }
}

// --- the folder -------------------------------------------------------------------------------

[[noreturn]] void fail(const fs::path& folder, const std::string& why) {
  throw ModelError(fmt::format("{}: {}", folder.string(), why));
}

/// Where the folder really lies: absolute, without a final slash, links followed.
fs::path resolved(const fs::path& folder) {
  if (folder.empty()) throw ModelError("the name of the model's folder is empty; give one");
  std::error_code error;
  fs::path path = fs::weakly_canonical(fs::absolute(folder, error), error);
  if (error) fail(folder, fmt::format("cannot be used: {}", error.message()));
  if (!path.has_filename()) path = path.parent_path();
  if (path == path.root_path()) fail(folder, "is the root of the file system; give a new folder");
  return path;
}

/// Whether a model has to be moved away; throws when the folder must stay as it is.
bool must_replace(const fs::path& folder, bool force) {
  std::error_code error;
  fs::file_status const status = fs::status(folder, error);
  if (!fs::exists(status)) {
    if (fs::is_symlink(fs::symlink_status(folder, error)))
      fail(folder, "is a link to nothing; give the name of a new folder");
    return false;
  }
  if (!fs::is_directory(status)) fail(folder, "is not a folder; give the name of a new one");
  bool filled = false;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    filled = true;
    std::string const name = at->path().filename().string();
    if (!force)
      fail(folder, fmt::format("already holds {}; give a new folder, or --force to replace a model",
                               quoted_name(name)));
    std::error_code ignored;
    if ((name != "config.json" && name != "model.safetensors") ||
        !fs::is_regular_file(fs::symlink_status(at->path(), ignored)))
      fail(folder, fmt::format("holds {}, which make-model did not write and will not remove; give "
                               "a new folder",
                               quoted_name(name)));
  }
  if (error) fail(folder, fmt::format("cannot be read: {}", error.message()));
  return filled;
}

/// A hidden name beside the folder that nobody uses.
fs::path free_name_beside(const fs::path& folder, const char* ending) {
  static std::atomic<std::uint32_t> counter{0};
  for (;;) {
    fs::path const path =
        folder.parent_path() / fmt::format(".{}.{}-{}.{}", folder.filename().string(), ::getpid(),
                                           counter.fetch_add(1, std::memory_order_relaxed), ending);
    std::error_code ignored;
    if (!fs::exists(fs::symlink_status(path, ignored))) return path;
  }
}

/// A new folder beside the one to come, removed with what is in it unless it was moved there.
class DraftFolder {
 public:
  explicit DraftFolder(const fs::path& folder) : path_(free_name_beside(folder, "tmp")) {
    std::error_code error;
    if (!fs::create_directory(path_, error))
      fail(folder, fmt::format("cannot be created: {}",
                               error ? error.message() : "its temporary name is in use"));
  }
  ~DraftFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  DraftFolder(const DraftFolder&) = delete;
  DraftFolder& operator=(const DraftFolder&) = delete;

  const fs::path& path() const noexcept { return path_; }

  void move_to(const fs::path& folder, bool replace) {
    std::error_code error;
    fs::path old;
    if (replace) {
      old = free_name_beside(folder, "old");
      fs::rename(folder, old, error);
      if (error) fail(folder, fmt::format("cannot be replaced: {}", error.message()));
    }
    fs::rename(path_, folder, error);
    std::error_code ignored;
    if (error) {
      if (replace) fs::rename(old, folder, ignored);
      fail(folder, fmt::format("cannot be created: {}", error.message()));
    }
    path_.clear();
    if (replace) fs::remove_all(old, ignored);
  }

 private:
  fs::path path_;
};

std::string size_text(std::uint64_t bytes) {
  double const b = static_cast<double>(bytes);
  return bytes >= 1'000'000'000 ? fmt::format("{:.1f} GB", b / 1e9)
                                : fmt::format("{:.1f} MB", b / 1e6);
}

void check_space(const fs::path& folder, std::uint64_t bytes) {
  std::error_code error;
  fs::space_info const space = fs::space(folder.parent_path(), error);
  if (error || space.available >= bytes) return;  // unknown: the write will tell
  fail(folder, fmt::format("needs {}, but its disk has only {} free; give a folder on another disk "
                           "or a smaller preset",
                           size_text(bytes), size_text(space.available)));
}

}  // namespace

const std::vector<FalconPreset>& falcon_presets() {
  static const std::vector<FalconPreset> presets = make_presets();
  return presets;
}

const FalconPreset& falcon_preset(std::string_view name) {
  std::string names;
  for (FalconPreset const& preset : falcon_presets()) {
    if (preset.name == name) return preset;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", preset.name);
  }
  throw ModelError(
      fmt::format("preset {} is not known; choose one of {}", quoted_name(name), names));
}

std::uint64_t parameter_count(const FalconH1Config& config) {
  std::uint64_t count = 0;
  for (LayerTensor const& tensor : layer_tensors(config)) count += tensor.shape.elements();
  return count * config.layers + config.hidden +
         std::uint64_t{config.vocabulary} * config.hidden * (config.tied ? 1 : 2);
}

MadeModel make_model(const FalconH1Config& config, const fs::path& folder,
                     const MakeModelOptions& options) {
  if (std::string const why = config_problem(config); !why.empty())
    throw ModelError(fmt::format("field {}", why));
  std::vector<PlannedTensor> const plan = plan_tensors(config, options.dtype);
  std::string const header =
      header_text(plan, options.dtype,
                  fmt::format("random weights, hybridstate make-model{}{}, seed {}",
                              options.label.empty() ? "" : " ", options.label, options.seed));
  MadeModel made;
  made.parameters = parameter_count(config);
  made.bytes = 8 + header.size() + made.parameters * dtype_bytes(options.dtype);

  fs::path const target = resolved(folder);
  bool const replace = must_replace(target, options.force);
  std::error_code error;
  fs::create_directories(target.parent_path(), error);
  if (error) fail(folder, fmt::format("cannot be created: {}", error.message()));
  check_space(target, made.bytes + (std::uint64_t{1} << 20));

  DraftFolder draft(target);
  {
    std::string const text = falcon_config_json(config, options.dtype);
    NewFile file(draft.path() / "config.json");
    file.write(text.data(), text.size());
    file.close();
  }
  NewFile file(draft.path() / "model.safetensors");
  std::uint64_t const length = header.size();
  file.write(&length, sizeof length);
  file.write(header.data(), header.size());
  if (options.dtype == Dtype::f32)
    write_tensors<float>(file, plan, options);
  else
    write_tensors<std::uint16_t>(file, plan, options);
  file.close();
  draft.move_to(target, replace);
  return made;
}

}  // namespace hybridstate::runtime
