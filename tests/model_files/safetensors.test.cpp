// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors.hpp"

#include <iterator>

#include "math/deterministic.hpp"
#include "support.hpp"

using namespace hybridstate::runtime;

namespace {

SafetensorsHeader read(const std::string& file) {
  // A block of exactly this size: a sanitizer sees every byte read beyond it.
  std::vector<std::byte> bytes(file.size());
  if (!file.empty()) std::memcpy(bytes.data(), file.data(), file.size());
  return read_safetensors_header(bytes, "f.safetensors");
}

std::string refusal(const std::string& file) {
  return sentence_of([&] { read(file); });
}

/// The refusal of one tensor "t" with this description, followed by 16 bytes of data.
std::string refusal_of(const std::string& description) {
  std::string header = "{\"t\":" + description + "}";
  while (header.size() % 8 != 0) header += ' ';
  return refusal(with_length(header, std::string(16, '\0')));
}

std::vector<LooseTensor> sound_tensors() {
  return {{"a", Dtype::f32, {2, 3}, std::string(24, 'a')},
          {"layer.0.weight", Dtype::bf16, {4, 1, 3}, std::string(24, 'b')},
          {"scalar", Dtype::f16, {}, std::string(2, 'c')},
          {"z", Dtype::f16, {7}, std::string(14, 'd')}};
}

}  // namespace

TEST_CASE("a sound file") {
  SafetensorsHeader const h = read(safetensors_text(sound_tensors()));
  REQUIRE(h.tensors.size() == 4);
  CHECK(h.tensors[1].name == "layer.0.weight");
  CHECK(h.tensors[1].shape == TensorShape{4, 1, 3});
  CHECK(h.tensors[1].begin == 24);
  CHECK(h.tensors[1].end == 48);
  CHECK(h.tensors[2].shape.rank == 0);
  CHECK(h.tensors[2].shape.elements() == 1);
  // No tensors at all, and metadata.
  CHECK(read(with_length("{}")).tensors.empty());
  CHECK(read(with_length(R"({"__metadata__":{"format":"pt","x":""}}   )")).tensors.empty());
}

TEST_CASE("each kind of damage has its sentence") {
  CHECK(contains(refusal(""), "f.safetensors: has 0 bytes"));
  CHECK(contains(refusal("1234567"), "has 7 bytes"));
  CHECK(contains(refusal(std::string(8, '\xff')), "header's length is 18446744073709551615"));
  CHECK(contains(refusal(std::string(8, '\0')), "header's length is 0"));
  CHECK(contains(refusal(with_length("{}").substr(0, 9)), "only 1 bytes follow"));
  CHECK(contains(refusal(with_length("  {}")), "must begin with a brace"));
  CHECK(contains(refusal(with_length("{ ")), "not valid JSON at byte 10"));
  CHECK(contains(refusal(with_length("{} x")), "not valid JSON at byte 11"));
  CHECK(contains(refusal(with_length("{\"a\xff\":{}}")), "not valid JSON"));
  CHECK(contains(refusal(with_length(R"({"__metadata__":7})")), "__metadata__ holds a number"));
  CHECK(contains(refusal(with_length(R"({"__metadata__":{"a":{}}})")), "__metadata__ holds an ob"));
  CHECK(contains(refusal(with_length("{}", "x")), "1 bytes of data, but its tensors end at 0"));
  CHECK(contains(refusal_of("7"), "tensor \"t\" is a number instead of an object"));
  CHECK(contains(refusal_of("[]"), "is a list instead of an object"));
  CHECK(contains(refusal_of("1e999"), "a number beyond every range"));
  CHECK(contains(refusal_of("{}"), "has no dtype"));
  CHECK(contains(refusal_of(R"({"dtype":"F32","shape":[4]})"), "has no data_offsets"));
  CHECK(contains(refusal_of(R"({"dtype":"F32","data_offsets":[0,16]})"), "has no shape"));
  CHECK(contains(refusal_of(R"({"dtype":"F32","dtype":"F32"})"), "has the field \"dtype\" twice"));
  CHECK(contains(refusal_of(R"({"type":"F32"})"), "unknown field \"type\""));
  CHECK(contains(refusal_of(R"({"dtype":"I8","shape":[16],"data_offsets":[0,16]})"),
                 "dtype \"I8\", but only BF16, F16 and F32"));
  CHECK(contains(refusal_of(R"({"dtype":32})"), "has a number as its dtype"));
  CHECK(contains(refusal_of(R"({"shape":4})"), "has a number as its shape"));
  CHECK(contains(refusal_of(R"({"shape":{}})"), "has an object as its shape"));
  CHECK(contains(refusal_of(R"({"shape":[[4]]})"), "has a list in its shape"));
  CHECK(contains(refusal_of(R"({"shape":[-4]})"), "has a negative number in its shape"));
  CHECK(contains(refusal_of(R"({"shape":[4.0]})"), "in its shape, but a dimension must"));
  CHECK(contains(refusal_of(R"({"shape":[18446744073709551616]})"), "in its shape"));
  CHECK(contains(refusal_of(R"({"shape":[1,1,1,1,4]})"), "more than 4 dimensions"));
  CHECK(contains(refusal_of(R"({"data_offsets":[0]})"), "has 1 data_offsets"));
  CHECK(contains(refusal_of(R"({"data_offsets":[0,16,16]})"), "more than two data_offsets"));
  CHECK(contains(refusal_of(R"({"data_offsets":["0",16]})"), "a string in its data_offsets"));
  CHECK(contains(refusal_of(R"({"dtype":"F32","shape":[4],"data_offsets":[16,0]})"),
                 "run backwards"));
  CHECK(contains(refusal_of(R"({"dtype":"F32","shape":[5],"data_offsets":[0,20]})"),
                 "ends at byte 20 of the data, but the file has only 16"));
  CHECK(contains(refusal_of(R"({"dtype":"F32","shape":[3],"data_offsets":[0,16]})"),
                 "has 16 bytes of data, but shape [3] of F32 needs 12"));
  CHECK(contains(refusal_of(R"({"dtype":"F32","shape":[0],"data_offsets":[0,0]})"),
                 "has no element"));
  CHECK(contains(refusal_of(R"({"dtype":"F32","shape":[4294967296,4294967296],)"
                            R"("data_offsets":[0,0]})"),
                 "more bytes than 64 bits count"));
  // 2^62 x 4 bytes = 2^64, which wraps to 0.
  CHECK(contains(refusal_of(R"({"dtype":"F32","shape":[4611686018427387904],)"
                            R"("data_offsets":[0,0]})"),
                 "more bytes than 64 bits count"));
  CHECK(contains(refusal_of(R"({"dtype":"F32","shape":[3],"data_offsets":[0,12]})"),
                 "16 bytes of data, but its tensors end at 12"));
  CHECK(contains(refusal_of(R"({"dtype":"F32","shape":[3],"data_offsets":[4,16]})"),
                 "bytes 0 to 4 of the data, before tensor \"t\", belong to no tensor"));
  std::string const odd = R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} )";
  REQUIRE(odd.size() % 4 != 0);
  CHECK(contains(refusal(with_length(odd, "1234")), "no multiple of its 4-byte elements"));
  auto const pair = [](int a0, int a1, int b0, int b1, const char* second = "b") {
    std::string header =
        fmt::format(R"({{"a":{{"dtype":"F32","shape":[{}],"data_offsets":[{},{}]}},)"
                    R"("{}":{{"dtype":"F32","shape":[{}],"data_offsets":[{},{}]}}}})",
                    (a1 - a0) / 4, a0, a1, second, (b1 - b0) / 4, b0, b1);
    while (header.size() % 8 != 0) header += ' ';
    return refusal(with_length(header, std::string(16, '\0')));
  };
  CHECK(pair(0, 8, 8, 16) == "");
  CHECK(pair(8, 16, 0, 8) == "");
  CHECK(contains(pair(0, 12, 8, 16), "tensors \"a\" and \"b\" share bytes 8 to 12"));
  CHECK(contains(pair(0, 16, 4, 8), "share bytes 4 to 8"));
  CHECK(contains(pair(0, 16, 0, 16), "share bytes 0 to 16"));
  CHECK(contains(pair(0, 4, 8, 16), "bytes 4 to 8 of the data"));
  CHECK(contains(pair(0, 8, 8, 16, "a"), "tensor \"a\" is there twice"));
  // Deep nesting and long names end in a sentence like any other.
  CHECK(contains(refusal(with_length("{\"a\":" + std::string(1000000, '['))), "instead of an obj"));
  CHECK(refusal_of("{\"" + std::string(100000, 'x') + "\":1}").size() < 600);
  CHECK_FALSE(contains(refusal(with_length("{\"a\\nb\":7}")), "\n"));
}

TEST_CASE("60,000 damaged files are read or refused with one sentence") {
  int const runs = fuzz_runs(60000);
  BitGenerator bits(3);
  std::string const base = safetensors_text(sound_tensors());
  std::string const with_metadata =
      with_length(R"({"__metadata__":{"format":"pt"},"t":{"dtype":"BF16","shape":[2,2],)"
                  R"("data_offsets":[0,8]}} )",
                  "12345678");
  const char* const words[] = {"18446744073709551615",
                               "9223372036854775808",
                               "4294967296",
                               "-1",
                               "0",
                               "1e5",
                               "null",
                               "true",
                               "{}",
                               "[]",
                               "\"F32\"",
                               "\"dtype\":",
                               "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"};
  int accepted = 0;
  for (int run = 0; run < runs; ++run) {
    std::string file = bits.below(4) == 0 ? with_metadata : base;
    for (std::uint64_t n = 1 + bits.below(4); n > 0 && !file.empty(); --n) {
      bool const anywhere = bits.below(8) == 0;
      std::size_t const size = file.size();
      std::size_t const at = anywhere || size <= 16 ? bits.below(size) : 8 + bits.below(size - 8);
      std::uint64_t const kind = bits.below(8);
      std::uint64_t const a = bits.next();  // one draw a statement: equal on every compiler
      std::uint64_t const b = bits.next();
      if (kind == 0)
        file[at] = static_cast<char>(a % 256);
      else if (kind == 1)
        file[at] = static_cast<char>(file[at] ^ (1 << a % 8));
      else if (kind == 2)
        file.erase(at, 1 + a % 12);
      else if (kind == 3)
        file.insert(at, 1, "0123456789{}[],:\"\\"[a % 18]);
      else if (kind == 4)
        file.insert(at, words[a % std::size(words)]);
      else if (kind == 5)
        file.insert(at, file.substr(a % size, b % 80));
      else if (kind == 6)
        file.resize(at);
      else if (file[at] >= '0' && file[at] <= '9')
        file[at] = static_cast<char>('0' + a % 10);
    }
    // Half of the time the length fits the text again, so that the damage reaches the parser.
    bool const fitted = bits.below(2) == 0;
    if (std::size_t const brace = file.rfind('}');
        fitted && brace != std::string::npos && brace >= 8) {
      std::uint64_t const length = brace + 1 - 8;
      std::memcpy(file.data(), &length, sizeof length);
    }
    try {
      SafetensorsHeader const h = read(file);
      std::uint64_t covered = 0;
      for (TensorEntry const& t : h.tensors) {
        CHECK(t.begin < t.end);
        CHECK(t.end <= file.size() - h.data_start);
        CHECK(t.end - t.begin == t.shape.elements() * dtype_bytes(t.dtype));
        covered += t.end - t.begin;
      }
      CHECK(covered == file.size() - h.data_start);
      ++accepted;
    } catch (const ModelError& error) {
      std::string const sentence = error.what();
      CHECK(contains(sentence, "f.safetensors: "));
      CHECK_FALSE(contains(sentence, "\n"));
      CHECK(sentence.size() < 600);
    }
  }
  CHECK(accepted > 100);
}

TEST_CASE("files that cannot be mapped") {
  TestFolder const folder;
  auto const opened = [&] { return sentence_of([&] { Checkpoint::open(folder.path()); }); };
  CHECK(contains(opened(), "has neither model.safetensors nor"));
  CHECK(contains(sentence_of([&] { Checkpoint::open(folder / "absent"); }), "is not a folder"));
  write_file(folder / "model.safetensors", "");
  CHECK(contains(opened(), "model.safetensors: is empty"));
  std::filesystem::remove(folder / "model.safetensors");
  std::filesystem::create_directory(folder / "model.safetensors");
  CHECK(contains(opened(), "is not a file that can be mapped"));
}

TEST_CASE("shards") {
  TestFolder const folder;
  auto const all = sound_tensors();
  write_file(folder / "one.safetensors", safetensors_text({all[0], all[2]}));
  write_file(folder / "two.safetensors", safetensors_text({all[1], all[3]}));
  auto const index = [&](const std::string& map) {
    write_file(folder / "model.safetensors.index.json", "{\"weight_map\": " + map + "}");
    return sentence_of([&] { Checkpoint::open(folder.path()); });
  };
  std::string const sound = R"({"a": "one.safetensors", "scalar": "one.safetensors",
      "layer.0.weight": "two.safetensors", "z": "two.safetensors"})";
  REQUIRE(index(sound) == "");
  Checkpoint moved = Checkpoint::open(folder.path());
  Checkpoint const checkpoint = std::move(moved);
  CHECK(checkpoint.files().size() == 2);
  CHECK(checkpoint.bytes() == 24 + 24 + 2 + 14);
  REQUIRE(checkpoint.find("z") != nullptr);
  CHECK(std::memcmp(checkpoint.find("z")->view.data, "dddddddddddddd", 14) == 0);
  CHECK(checkpoint.find("y") == nullptr);

  CHECK(contains(index("[]"), "\"weight_map\" must be an object"));
  CHECK(contains(index("{}"), "\"weight_map\" must be an object"));
  CHECK(contains(index(R"({"a": 1})"), "has 1 for \"a\""));
  for (const char* const name : {"../x.safetensors", "/etc/passwd", "..", "", "a/b"})
    CHECK(contains(index(fmt::format(R"({{"a": "{}"}})", name)), "in the same folder"));
  CHECK(contains(index(R"({"a": "three.safetensors"})"), "three.safetensors: cannot be opened"));
  CHECK(
      contains(index(R"({"a": "one.safetensors"})"), "tensor \"scalar\" is not in the weight_map"));
  CHECK(contains(index(R"({"a": "one.safetensors", "scalar": "one.safetensors",
                           "q": "one.safetensors"})"),
                 "says that \"one.safetensors\" has tensor \"q\""));
  CHECK(contains(index(R"({"a": "two.safetensors", "scalar": "one.safetensors"})"),
                 "says that \"two.safetensors\" has tensor \"a\""));
  write_file(folder / "two.safetensors", safetensors_text({all[0], all[3]}));
  CHECK(contains(index(sound), "tensor \"a\" is also in"));
  write_file(folder / "model.safetensors.index.json", "{\"weight_map\": ");
  CHECK(contains(sentence_of([&] { Checkpoint::open(folder.path()); }), "not valid JSON"));
}
