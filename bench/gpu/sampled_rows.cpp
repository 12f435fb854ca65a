#include "bench/gpu/sampled_rows.h"

#include <algorithm>
#include <cmath>

#include "cli/check/bound_program.h"

namespace fovea::bench {
namespace {

struct Row {
  std::int64_t b = 0, h = 0, q = 0;
};

bool captures_all(const DeviceLine& line) {
  return line.captured().tensors.size() == fovea_program_tensor_count(line.program());
}

// `count` elements from `first` on, as numbers.
std::vector<double> fetch(const Block& block, fovea_dtype dtype, std::int64_t first,
                          std::int64_t count) {
  cli::Array array = cli::zeros(cli::dtype_name(dtype), {count});
  const auto size = static_cast<std::size_t>(cli::element_size(array.dtype));
  block.fetch(array.bytes.data(), array.bytes.size(), static_cast<std::size_t>(first) * size);
  std::vector<double> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back(array.get(i));
  return out;
}

struct Keys {
  std::vector<double> k, v;  // from the head's first row on, at the tensors' strides
};

class RowOnHost {
 public:
  explicit RowOnHost(const DeviceLine& line)
      : line_(line), c_(line.config()), formula_(line.program(), line.captured(), c_.sizes) {}

  std::vector<double> compute(const Row& row) const {
    const fovea_sizes& s = c_.sizes;
    const std::int64_t g = row.h / (s.h / s.hkv);
    const Keys keys = fetch_keys(row.b, g);
    const std::vector<double> q =
        fetch(*line_.first().q, c_.dtype, at(c_.q_strides, row.b, row.h, row.q), s.d);
    std::vector<double> scores;
    for (std::int64_t k = 0; k < s.skv; ++k) scores.push_back(score(row, q, keys, k));
    const double top = std::ranges::max(scores);
    std::vector<double> o(static_cast<std::size_t>(s.dv), 0);
    if (std::isinf(top)) return o;
    double sum = 0;
    for (std::int64_t k = 0; k < s.skv; ++k) {
      const double p = std::exp(scores[static_cast<std::size_t>(k)] - top);
      sum += p;
      const auto from = static_cast<std::size_t>(k * c_.v_strides[2]);
      for (std::size_t i = 0; i < o.size() && p != 0; ++i) o[i] += p * keys.v[from + i];
    }
    for (double& x : o) x /= sum;
    return o;
  }

 private:
  static std::int64_t at(const std::int64_t (&strides)[4], std::int64_t b, std::int64_t h,
                         std::int64_t i) {
    return b * strides[0] + h * strides[1] + i * strides[2];
  }
  Keys fetch_keys(std::int64_t b, std::int64_t g) const {
    const fovea_sizes& s = c_.sizes;
    return {fetch(*line_.first().k, c_.dtype, at(c_.k_strides, b, g, 0),
                  (s.skv - 1) * c_.k_strides[2] + s.d),
            fetch(*line_.first().v, c_.dtype, at(c_.v_strides, b, g, 0),
                  (s.skv - 1) * c_.v_strides[2] + s.dv)};
  }
  double score(const Row& row, const std::vector<double>& q, const Keys& keys,
               std::int64_t k) const {
    const auto from = static_cast<std::size_t>(k * c_.k_strides[2]);
    double dot = 0;
    for (std::size_t i = 0; i < q.size(); ++i) dot += q[i] * keys.k[from + i];
    const double scale = c_.scale != 0 ? static_cast<double>(c_.scale)
                                       : 1 / std::sqrt(static_cast<double>(q.size()));
    const auto value = formula_.evaluate({row.b, row.h, row.q, k}, static_cast<float>(scale * dot));
    if (!value.keep) return -std::numeric_limits<double>::infinity();
    return static_cast<double>(value.score);
  }

  const DeviceLine& line_;
  const fovea_problem_config& c_;
  cli::BoundProgram formula_;
};

bool can_tell(const DeviceLine& line) {
  const fovea_problem_config& c = line.config();
  const bool plain = c.layout != FOVEA_THD && c.dropout == 0 && c.sink == 0 &&
                     c.has_q_lengths == 0 && c.has_k_lengths == 0 && c.has_q_offsets == 0 &&
                     c.has_k_offsets == 0 && c.q_offset == 0 && c.k_offset == 0 && c.h_offset == 0;
  return plain && captures_all(line);
}

}  // namespace

double error_of_sampled_rows(const DeviceLine& line) {
  if (!can_tell(line)) return -1;
  const fovea_sizes& s = line.config().sizes;
  const Row rows[] = {{0, 0, 0}, {s.b - 1, s.h - 1, s.sq - 1}, {s.b / 2, s.h / 2, s.sq * 5 / 8}};
  const RowOnHost on_host(line);
  double error = 0, square = 1e-300;
  for (const Row& row : rows) {
    const std::vector<double> right = on_host.compute(row);
    const auto& strides = line.config().o_strides;
    const fovea_dtype type =
        line.config().o_dtype == FOVEA_DTYPE_DEFAULT ? line.config().dtype : line.config().o_dtype;
    const std::vector<double> got = fetch(
        *line.first().o, type, row.b * strides[0] + row.h * strides[1] + row.q * strides[2], s.dv);
    for (std::size_t i = 0; i < right.size(); ++i) {
      error += (got[i] - right[i]) * (got[i] - right[i]);
      square += right[i] * right[i];
    }
  }
  return std::sqrt(error / square);
}

double kept_share(const DeviceLine& line) {
  const fovea_sizes& s = line.config().sizes;
  if (line.config().layout == FOVEA_THD || !captures_all(line)) return 1;
  const cli::BoundProgram formula(line.program(), line.captured(), s);
  if (!formula.has_mask()) return 1;
  constexpr std::int64_t tile = 64;
  double kept = 0;
  for (std::int64_t b = 0; b < s.b; ++b) {
    for (std::int64_t q = 0; q < s.sq; q += tile) {
      for (std::int64_t k = 0; k < s.skv; k += tile) {
        const std::int64_t q1 = std::min(q + tile, s.sq), k1 = std::min(k + tile, s.skv);
        const cli::TileClass found = formula.classify({b, 0, q, q1, k, k1});
        const double scores = static_cast<double>((q1 - q) * (k1 - k));
        if (found == cli::TileClass::Full) kept += scores;
        if (found == cli::TileClass::Mixed) kept += scores / 2;
      }
    }
  }
  return kept / static_cast<double>(s.b * s.sq * s.skv);
}

}  // namespace fovea::bench
