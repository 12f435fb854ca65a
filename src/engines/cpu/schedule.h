// Which worker takes what of a wave of heads, and in which order. Workers take tasks one after the
// other, so the order decides how late the last one ends: whole heads first (so that what is read
// of a head repeatedly stays in one worker's cache), then pieces of the heads that are shared, and
// finally parts of pieces. How work is divided changes no bit of a result: blocks.h alone decides
// how numbers are added up.
//
// On a machine with several memory nodes each node has its own heads, and its workers take those
// first; workers that finish early help the others.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace fovea::cpu {

inline constexpr int most_homes = 8;  // nodes of memory that are told apart

class WaveSchedule {
 public:
  struct Shape {
    std::int64_t heads = 0;
    std::int64_t pieces = 1;   // of a head, the longest first
    int most_cuts = 1;         // parts into which a piece may be cut: 1, 2, 4 or 8
    bool whole_heads = false;  // some workers may take whole heads
    bool even = true;  // pieces cost the same; false: the first ones may cost twice the mean
  };
  struct Task {
    std::int64_t head = 0, piece = 0;
    int cut = 0, cuts = 1;  // part `cut` of `cuts` equal ones
    bool whole = false;     // all pieces of the head
  };

  WaveSchedule(const Shape& shape, int workers, int nodes);

  // Tasks [homes[n], homes[n + 1]) are those of node n.
  std::span<const std::int64_t> homes() const {
    return {first_task_.data(), static_cast<std::size_t>(nodes_) + 1};
  }
  std::int64_t tasks() const { return homes().back(); }
  Task find(std::int64_t task) const;
  bool is_whole(std::int64_t head) const;
  std::int64_t shared_heads() const;

 private:
  static constexpr int levels = 4;  // pieces, halves, quarters, eighths
  struct Node {
    std::int64_t first_head = 0, heads = 0;
    std::int64_t whole = 0;                     // heads, the first ones
    std::array<std::int64_t, levels> pieces{};  // how many are cut into 1, 2, 4 and 8

    void share(const Shape& shape, std::int64_t workers);
    bool cut_in_pairs(const Shape& shape, std::int64_t workers, int deepest);
    std::int64_t cut_in_rounds(const Shape& shape, std::int64_t workers, int deepest);
    std::int64_t shared() const { return heads - whole; }
    std::int64_t tasks() const;
    Task find(std::int64_t task) const;
  };

  int nodes_ = 1;
  std::array<Node, most_homes> node_{};
  std::array<std::int64_t, most_homes + 1> first_task_{};
};

}  // namespace fovea::cpu
