#include "attention/tensor_strides.h"

#include <algorithm>
#include <charconv>

#include "attention/extents.h"
#include "attention/refuse.h"
#include "base/words.h"

namespace fovea {
namespace {

constexpr const char* argument = "tensor_strides";
constexpr std::int64_t largest_stride = std::int64_t{1} << 40;

std::vector<std::int64_t> numbers(std::string_view text, const std::string& name) {
  std::vector<std::int64_t> out;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    std::int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    const bool separated = next == end || (*next == ',' && next + 1 != end);
    if (error != std::errc() || !separated) {
      refuse(argument, std::string(text.substr(0, 64)),
             "the strides of '" + name + "' must be whole numbers separated by commas");
    }
    if (value > largest_stride || value < -largest_stride) {
      refuse(argument, value, "a stride of '" + name + "' must lie within 2^40");
    }
    out.push_back(value);
    at = next == end ? end : next + 1;
  }
  return out;
}

std::size_t slot_named(const ir::Program& program, const std::string& name) {
  const auto& declared = program.tensors();
  const auto found = std::ranges::find(declared, name, &ir::TensorDecl::name);
  if (found != declared.end()) return static_cast<std::size_t>(found - declared.begin());
  std::vector<std::string> names;
  for (const ir::TensorDecl& one : declared) names.push_back(one.name);
  refuse(argument, name.substr(0, 64),
         "the program captures no such tensor" + did_you_mean(name, names));
}

void set_one(Problem& problem, std::string_view word) {
  const std::size_t colon = word.find(':');
  if (colon == std::string_view::npos) {
    refuse(argument, std::string(word.substr(0, 64)),
           "must be words like bias:1,64,4096, separated by spaces");
  }
  const std::string name(word.substr(0, colon));
  const std::size_t slot = slot_named(problem.program, name);
  if (!problem.tensor_strides[slot].empty()) refuse(argument, name, "is named twice");
  std::vector<std::int64_t> strides = numbers(word.substr(colon + 1), name);
  const std::size_t rank = problem.program.tensors()[slot].extents.size();
  if (strides.size() != rank) {
    refuse(argument, std::string(word.substr(0, 64)),
           "'" + name + "' has " + std::to_string(rank) + " dimensions, one stride each");
  }
  problem.tensor_strides[slot] = std::move(strides);
}

bool all_empty(const Problem& problem) {
  return std::ranges::all_of(problem.tensor_strides, [](const auto& one) { return one.empty(); });
}

}  // namespace

void set_tensor_strides(Problem& problem, std::string_view text) {
  problem.tensor_strides.assign(problem.program.tensors().size(), {});
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    if (space != 0) set_one(problem, text.substr(0, space));
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  if (all_empty(problem)) problem.tensor_strides.clear();
}

std::string tensor_strides_text(const Problem& problem) {
  std::string out;
  for (std::size_t slot = 0; slot < problem.tensor_strides.size(); ++slot) {
    std::string list;
    for (const std::int64_t stride : problem.tensor_strides[slot]) {
      list += (list.empty() ? "" : ",") + std::to_string(stride);
    }
    if (list.empty()) continue;
    out += (out.empty() ? "" : " ") + problem.program.tensors()[slot].name + ":" + list;
  }
  return out;
}

std::vector<std::int64_t> dense_tensor_strides(std::span<const std::int64_t> extents) {
  std::vector<std::int64_t> strides(extents.size(), 1);
  for (std::size_t i = extents.size(); i-- > 1;) strides[i - 1] = strides[i] * extents[i];
  return strides;
}

std::vector<std::int64_t> tensor_strides(const Problem& problem, std::size_t slot) {
  if (slot < problem.tensor_strides.size() && !problem.tensor_strides[slot].empty()) {
    return problem.tensor_strides[slot];
  }
  return dense_tensor_strides(
      captured_extents(problem.program.tensors()[slot], problem.sizes, problem.h_global));
}

void drop_dense_tensor_strides(Problem& problem) {
  for (std::size_t slot = 0; slot < problem.tensor_strides.size(); ++slot) {
    std::vector<std::int64_t>& given = problem.tensor_strides[slot];
    const auto extents =
        captured_extents(problem.program.tensors()[slot], problem.sizes, problem.h_global);
    const std::vector<std::int64_t> dense = dense_tensor_strides(extents);
    bool same = true;
    for (std::size_t i = 0; i < given.size(); ++i) {
      same = same && (given[i] == dense[i] || extents[i] <= 1);
    }
    if (same) given.clear();
  }
  if (all_empty(problem)) problem.tensor_strides.clear();
}

}  // namespace fovea
