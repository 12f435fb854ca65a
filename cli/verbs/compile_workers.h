// Processes side by side: each does one piece of work after the other, and one that dies costs its
// piece alone. Knows nothing of plans. Used by `fovea compile`, since libraries that compile are
// not made to do so in many threads, and abort at times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace fovea::cli {

enum class Outcome : std::uint8_t {
  Done,
  Refused,  // an answer, not a fault
  Failed,
  Mistake,  // of the user: there is no point in going on
};

struct WorkResult {
  Outcome outcome = Outcome::Failed;
  double seconds = 0;
  std::string text;  // at most 32 KiB come through
};

// work(i) for each i < count, in at most `jobs` processes; done(i, result) here, as they come.
// False from done() stops the rest. Throws std::runtime_error if a signal asks to stop.
void work_side_by_side(std::size_t count, std::size_t jobs,
                       const std::function<WorkResult(std::size_t)>& work,
                       const std::function<bool(std::size_t, const WorkResult&)>& done);

}  // namespace fovea::cli
