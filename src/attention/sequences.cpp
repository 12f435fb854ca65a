#include "attention/sequences.h"

#include <limits>
#include <string>

#include "attention/refuse.h"

namespace fovea {
namespace {

std::string entry(std::string_view name, std::size_t i) {
  return std::string(name) + "[" + std::to_string(i) + "]";
}

void check_starts(const Sequences& s) {
  if (s.starts.empty()) return;
  if (s.starts[0] != 0) refuse(entry(s.named.starts, 0), s.starts[0], "the first start must be 0");
  for (std::size_t i = 1; i < s.starts.size(); ++i) {
    if (s.starts[i] < s.starts[i - 1]) {
      refuse(entry(s.named.starts, i), s.starts[i],
             "starts must not fall (" + std::to_string(s.starts[i - 1]) + " before it)");
    }
  }
  if (s.starts.back() > s.rows) {
    refuse(entry(s.named.starts, s.starts.size() - 1), s.starts.back(),
           "the last start must be at most " + std::string(s.named.rows) + "=" +
               std::to_string(s.rows));
  }
}

// The room of sequence i in the packed tensor.
std::int64_t room(const Sequences& s, std::size_t i) {
  return s.starts.empty() ? s.longest : std::int64_t{s.starts[i + 1]} - s.starts[i];
}

void check_lengths(const Sequences& s) {
  for (std::size_t i = 0; i < s.lengths.size(); ++i) {
    if (s.lengths[i] < 0 || s.lengths[i] > s.longest) {
      refuse(entry(s.named.lengths, i), s.lengths[i],
             "must lie in 0.." + std::string(s.named.longest) + "=" + std::to_string(s.longest));
    }
    if (s.lengths[i] > room(s, i)) {
      refuse(entry(s.named.lengths, i), s.lengths[i],
             "is more than the " + std::to_string(room(s, i)) + " rows between its starts");
    }
  }
  if (!s.lengths.empty() || s.starts.empty()) return;
  for (std::size_t i = 0; i + 1 < s.starts.size(); ++i) {
    if (room(s, i) <= s.longest) continue;
    refuse(entry(s.named.starts, i + 1), s.starts[i + 1],
           "gives a sequence of " + std::to_string(room(s, i)) + " rows, more than " +
               std::string(s.named.longest) + "=" + std::to_string(s.longest));
  }
}

void check_offsets(const Sequences& s) {
  for (std::size_t i = 0; i < s.offsets.size(); ++i) {
    if (s.offsets[i] < 0) refuse(entry(s.named.offsets, i), s.offsets[i], "must be 0 or more");
    const std::int64_t length = s.lengths.empty() ? s.longest : s.lengths[i];
    if (s.offsets[i] + length > most_positions) {
      refuse(entry(s.named.offsets, i), s.offsets[i],
             "positions must stay below 2^31 (its length is " + std::to_string(length) + ")");
    }
  }
}

}  // namespace

void check_sequences(const Sequences& sequences) {
  check_starts(sequences);
  check_lengths(sequences);
  check_offsets(sequences);
}

}  // namespace fovea
