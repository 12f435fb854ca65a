#include "cli/check/captured.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <fovea/handle.hpp>
#include <map>
#include <random>
#include <stdexcept>

namespace fovea::cli {
namespace {

constexpr std::array<const char*, 9> dtype_names{"f32", "f32", "f16", "bf16", "f64",
                                                 "i32", "i64", "u8",  "bool"};

std::int64_t extent_of(const std::string& word, const fovea_sizes& sizes) {
  if (word == "B") return sizes.b;
  if (word == "H") return sizes.h;
  if (word == "Hkv") return sizes.hkv;
  if (word == "Sq") return sizes.sq;
  if (word == "Skv") return sizes.skv;
  return std::stoll(word);
}

// ---- test data: what `tensor="doc:i32[B,Sq]=docs(5)"` asks for ----

// A generator's name and arguments: docs(5) -> docs, {5}.
struct GeneratorCall {
  std::string name;
  std::vector<double> arguments;
};

[[noreturn]] void refuse(const DataRequest& request, const std::string& rule) {
  throw std::invalid_argument("tensor " + request.name + ": the data '" + request.text + "' " +
                              rule);
}

double number(const DataRequest& request, std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || error != std::errc{}) {
    refuse(request, "has an argument '" + std::string(text) + "' that is not a number");
  }
  return value;
}

GeneratorCall parse_call(const DataRequest& request) {
  const std::string& text = request.text;
  const std::size_t open = text.find('(');
  if (open == std::string::npos || text.back() != ')') {
    refuse(request, "is not docs(n), blocks(n), uniform(lo,hi), normal(s) or a FILE.npy");
  }
  GeneratorCall call{text.substr(0, open), {}};
  std::string_view rest(text);
  rest = rest.substr(open + 1, text.size() - open - 2);
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    call.arguments.push_back(number(request, rest.substr(0, comma)));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return call;
}

void expect_arguments(const DataRequest& request, const GeneratorCall& call, std::size_t count) {
  if (call.arguments.size() == count) return;
  refuse(request, "takes " + std::to_string(count) + " arguments, got " +
                      std::to_string(call.arguments.size()));
}

// Sorted ids of n documents along the last dimension, borders drawn anew for each row.
void fill_documents(Array& array, double documents, std::mt19937_64& random) {
  const std::int64_t length = array.extents.empty() ? 1 : array.extents.back();
  const auto borders = static_cast<std::size_t>(std::max(0.0, documents - 1));
  for (std::int64_t start = 0; start < array.size(); start += length) {
    std::vector<std::int64_t> border(borders);
    for (std::int64_t& at : border) {
      at = std::uniform_int_distribution<std::int64_t>(0, length)(random);
    }
    std::ranges::sort(border);
    for (std::int64_t i = 0; i < length; ++i) {
      const auto id = std::ranges::upper_bound(border, i) - border.begin();
      array.set(start + i, static_cast<double>(id));
    }
  }
}

// Ids of blocks of n elements each along the last dimension.
void fill_blocks(Array& array, double n) {
  const std::int64_t length = array.extents.empty() ? 1 : array.extents.back();
  for (std::int64_t i = 0; i < array.size(); ++i) {
    array.set(i, std::floor(static_cast<double>(i % length) / n));
  }
}

void fill_uniform(Array& array, double lo, double hi, std::mt19937_64& random) {
  std::uniform_real_distribution<double> real(lo, hi);
  const auto first = static_cast<std::int64_t>(lo);
  const auto last = std::max(first, static_cast<std::int64_t>(hi) - 1);
  std::uniform_int_distribution<std::int64_t> whole(first, last);
  for (std::int64_t i = 0; i < array.size(); ++i) {
    array.set(i, is_float(array.dtype) ? real(random) : static_cast<double>(whole(random)));
  }
}

void fill_normal(Array& array, double deviation, std::mt19937_64& random) {
  std::normal_distribution<double> normal(0, deviation);
  for (std::int64_t i = 0; i < array.size(); ++i) array.set(i, normal(random));
}

Array from_file(const DataRequest& request) {
  Array array = read_npy(request.text);
  const bool bf16 = request.dtype == "bf16" && array.dtype == "u16";
  if (array.dtype != request.dtype && !bf16) {
    refuse(request, "holds " + array.dtype + ", declared is " + request.dtype);
  }
  if (array.extents != request.extents) refuse(request, "has another shape than declared");
  array.dtype = request.dtype;
  return array;
}

// Which tensors index which, read off the printed formulas: `data[b, table[q]]` bounds the values
// of `table` by the second extent of `data`.

bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string trim(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

// A load as text: its tensor, its indices, and where it ends.
struct Load {
  std::string tensor;
  std::vector<std::string> indices;
  std::size_t end = 0;
};

Load read_load(const std::string& text, std::size_t name, std::size_t open) {
  Load load{text.substr(name, open - name), {""}, open + 1};
  for (int depth = 1; load.end < text.size() && depth > 0; ++load.end) {
    const char c = text[load.end];
    if (c == '[' || c == '(') ++depth;
    if (c == ']' || c == ')') --depth;
    if (c == ',' && depth == 1) {
      load.indices.emplace_back();
    } else if (depth > 0) {
      load.indices.back() += c;
    }
  }
  for (std::string& index : load.indices) index = trim(index);
  return load;
}

// The tensor that a text is a load of and nothing more; "" if it is none.
std::string whole_load(const std::string& text) {
  std::size_t open = 0;
  while (open < text.size() && in_name(text[open])) ++open;
  if (open == 0 || open >= text.size() || text[open] != '[') return "";
  const Load load = read_load(text, 0, open);
  return load.end == text.size() ? load.tensor : "";
}

// What `let name = tensor[...];` calls by another name.
std::map<std::string, std::string> aliases(const std::string& text) {
  std::map<std::string, std::string> out;
  for (std::size_t at = text.find("let "); at != std::string::npos;
       at = text.find("let ", at + 4)) {
    const std::size_t equals = text.find('=', at);
    const std::size_t end = text.find(';', at);
    if (equals == std::string::npos || end == std::string::npos || equals > end) break;
    const std::string tensor = whole_load(trim(text.substr(equals + 1, end - equals - 1)));
    if (!tensor.empty()) out[trim(text.substr(at + 4, equals - at - 4))] = tensor;
  }
  return out;
}

std::map<std::string, std::vector<std::int64_t>> all_extents(fovea_program program,
                                                             const fovea_sizes& sizes) {
  std::map<std::string, std::vector<std::int64_t>> out;
  fovea_capture_info info{};
  info.struct_size = sizeof info;
  for (std::size_t i = 0; i < fovea_program_tensor_count(program); ++i) {
    check(fovea_program_tensor(program, i, &info));
    out[info.name] = extents_of(info.extents, sizes);
  }
  return out;
}

}  // namespace

std::string dtype_name(fovea_dtype dtype) { return dtype_names.at(dtype); }

std::vector<std::int64_t> extents_of(const std::string& text, const fovea_sizes& sizes) {
  std::vector<std::int64_t> extents;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    extents.push_back(extent_of(text.substr(at, comma - at), sizes));
    at = comma + 1;
  }
  return extents;
}

std::uint64_t seed_for(std::uint64_t seed, const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325u ^ (seed * 0x9e3779b97f4a7c15u);  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

CapturedData make_captured(fovea_program program, const fovea_sizes& sizes, std::uint64_t seed) {
  CapturedData out;
  fovea_capture_info info{};
  info.struct_size = sizeof info;
  for (std::size_t i = 0; i < fovea_program_tensor_count(program); ++i) {
    check(fovea_program_tensor(program, i, &info));
    const DataRequest request{info.name,
                              dtype_name(info.dtype),
                              info.data,
                              extents_of(info.extents, sizes),
                              seed_for(seed, info.name),
                              index_bound(program, info.name, sizes)};
    out.tensors.push_back({info.name, make_data(request)});
  }
  for (std::size_t i = 0; i < fovea_program_scalar_count(program); ++i) {
    check(fovea_program_scalar(program, i, &info));
    if (info.has_value == 0) {
      throw std::invalid_argument("scalar '" + std::string(info.name) +
                                  "' needs a value, as in scalar=\"" + info.name + "=1\"");
    }
    out.scalars.push_back({info.name, info.value, info.dtype == FOVEA_F32});
  }
  return out;
}

Array make_data(const DataRequest& request) {
  if (request.text.ends_with(".npy")) return from_file(request);
  std::mt19937_64 random(request.seed);
  Array array = zeros(request.dtype, request.extents);
  if (request.text.empty()) {
    if (is_float(request.dtype)) {
      fill_normal(array, 1, random);
    } else {
      const auto bound = static_cast<double>(std::max<std::int64_t>(1, request.index_bound));
      fill_uniform(array, 0, request.dtype == "bool" ? 2 : bound, random);
    }
    return array;
  }
  const GeneratorCall call = parse_call(request);
  if (call.name == "docs") {
    expect_arguments(request, call, 1);
    const double documents = call.arguments[0];
    if (!(documents >= 1 && documents <= 1e6)) refuse(request, "needs 1 to 10^6 documents");
    fill_documents(array, documents, random);
  } else if (call.name == "blocks") {
    expect_arguments(request, call, 1);
    if (!(call.arguments[0] >= 1)) refuse(request, "needs blocks of at least 1");
    fill_blocks(array, call.arguments[0]);
  } else if (call.name == "uniform") {
    expect_arguments(request, call, 2);
    if (!(call.arguments[0] <= call.arguments[1])) refuse(request, "needs lo <= hi");
    fill_uniform(array, call.arguments[0], call.arguments[1], random);
  } else if (call.name == "normal") {
    expect_arguments(request, call, 1);
    if (!(call.arguments[0] >= 0)) refuse(request, "needs a deviation of at least 0");
    fill_normal(array, call.arguments[0], random);
  } else {
    refuse(request, "names no generator" + did_you_mean(call.name, "docs blocks uniform normal"));
  }
  return array;
}

std::int64_t index_bound(fovea_program program, const std::string& tensor,
                         const fovea_sizes& sizes) {
  const auto extents = all_extents(program, sizes);
  const std::string line = report_of(fovea_program_print, program, FOVEA_TEXT_CANONICAL);
  std::int64_t bound = 0;
  for (const char* key : {"mod", "mask", "bprop"}) {
    const std::string text = line_value(line, key);
    const auto named = aliases(text);
    for (std::size_t open = text.find('['); open != std::string::npos;
         open = text.find('[', open + 1)) {
      std::size_t name = open;
      while (name > 0 && in_name(text[name - 1])) --name;
      const Load load = read_load(text, name, open);
      const auto outer = extents.find(load.tensor);
      if (outer == extents.end() || outer->second.size() != load.indices.size()) continue;
      for (std::size_t i = 0; i < load.indices.size(); ++i) {
        const auto alias = named.find(load.indices[i]);
        const std::string inner =
            alias != named.end() ? alias->second : whole_load(load.indices[i]);
        if (inner != tensor) continue;
        bound = bound == 0 ? outer->second[i] : std::min(bound, outer->second[i]);
      }
    }
  }
  constexpr std::int64_t indexes_nothing = 8;
  return bound == 0 ? indexes_nothing : bound;
}

namespace {

std::int32_t narrow(std::int64_t x) { return static_cast<std::int32_t>(x); }

}  // namespace

std::vector<fovea_tensor_binding> bind_tensors(const CapturedData& captured) {
  std::vector<fovea_tensor_binding> out;
  for (const CapturedTensor& tensor : captured.tensors) {
    fovea_tensor_binding binding{};
    binding.name = tensor.name.c_str();
    // The interface has one struct for tensors that are read and written; these are only read.
    binding.array.data = const_cast<unsigned char*>(tensor.values.bytes.data());
    binding.array.rank = static_cast<std::int32_t>(tensor.values.extents.size());
    std::copy(tensor.values.extents.begin(), tensor.values.extents.end(), binding.array.extent);
    out.push_back(binding);
  }
  return out;
}

std::vector<fovea_scalar_binding> bind_scalars(const CapturedData& captured) {
  std::vector<fovea_scalar_binding> out;
  for (const CapturedScalar& scalar : captured.scalars) {
    out.push_back({scalar.name.c_str(), scalar.value, nullptr, nullptr});
  }
  return out;
}

BoundProgram::BoundProgram(fovea_program program, const CapturedData& captured,
                           const fovea_sizes& sizes)
    : program_(program), tensors_(bind_tensors(captured)), scalars_(bind_scalars(captured)) {
  const std::string line = report_of(fovea_program_print, program, FOVEA_TEXT_CANONICAL);
  mod_text_ = line_value(line, "mod");
  mask_text_ = line_value(line, "mask");
  point_.struct_size = sizeof point_;
  point_.B = narrow(sizes.b), point_.H = narrow(sizes.h), point_.Hkv = narrow(sizes.hkv);
  set_lengths(sizes.sq, sizes.skv);
  point_.tensors = tensors_.data(), point_.tensor_count = tensors_.size();
  point_.scalars = scalars_.data(), point_.scalar_count = scalars_.size();
}

bool BoundProgram::is_additive() const {
  const std::string text =
      report_of(fovea_program_differentiate, program_, "score", FOVEA_TEXT_CANONICAL);
  return text == "1" || text == "1.0" || text == "1\n";
}

void BoundProgram::set_lengths(std::int64_t sq, std::int64_t skv) {
  point_.Sq = narrow(sq), point_.Skv = narrow(skv);
}

BoundProgram::Value BoundProgram::evaluate(const Position& at, float score) const {
  fovea_point point = point_;
  point.score = static_cast<double>(score);
  point.b = narrow(at.b), point.h = narrow(at.h), point.q = narrow(at.q), point.k = narrow(at.k);
  fovea_value value{};
  value.struct_size = sizeof value;
  check(fovea_program_evaluate(program_, &point, 0, &value));
  return {value.keep != 0, static_cast<float>(value.mod)};
}

TileClass BoundProgram::classify(const Tile& tile) const {
  fovea_box box{};
  box.struct_size = sizeof box;
  box.q_first = narrow(tile.q0), box.q_last = narrow(tile.q1);
  box.k_first = narrow(tile.k0), box.k_last = narrow(tile.k1);
  box.at = point_;
  box.at.b = narrow(tile.b), box.at.h = narrow(tile.h);
  fovea_tile_class result = FOVEA_TILE_MIXED;
  check(fovea_program_classify(program_, &box, &result));
  switch (result) {
    case FOVEA_TILE_EMPTY: return TileClass::Empty;
    case FOVEA_TILE_FULL: return TileClass::Full;
    case FOVEA_TILE_MIXED: return TileClass::Mixed;
  }
  return TileClass::Mixed;
}

}  // namespace fovea::cli
