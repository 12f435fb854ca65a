// Test data for captured tensors: what `tensor="doc:i32[B,Sq]=docs(5)"` asks for.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <random>
#include <stdexcept>

#include "array.h"
#include "spelling.h"

namespace fovea::cli {
namespace {

// A generator's name and arguments: docs(5) -> docs, {5}.
struct Call {
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

Call parse_call(const DataRequest& request) {
  const std::string& text = request.text;
  const std::size_t open = text.find('(');
  if (open == std::string::npos || text.back() != ')') {
    refuse(request, "is not docs(n), blocks(n), uniform(lo,hi), normal(s) or a FILE.npy");
  }
  Call call{text.substr(0, open), {}};
  std::string_view rest(text);
  rest = rest.substr(open + 1, text.size() - open - 2);
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    call.arguments.push_back(number(request, rest.substr(0, comma)));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return call;
}

void expect_arguments(const DataRequest& request, const Call& call, std::size_t count) {
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

}  // namespace

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
  const Call call = parse_call(request);
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
    refuse(request,
           "names no generator" + did_you_mean(call.name, {"docs", "blocks", "uniform", "normal"}));
  }
  return array;
}

}  // namespace fovea::cli
