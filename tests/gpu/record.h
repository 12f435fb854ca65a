// Which lines a process has begun and how each of them ended, in the file that FOVEA_TEST_RECORD
// names. A GPU fault ends a process: the next one of the same file goes on behind the line that it
// was at. Without the variable nothing is kept.
#pragma once

#include <string>
#include <vector>

#include "cli/check/compare.h"

namespace fovea::gpu_tests {

class Record {
 public:
  static Record& of_this_process();

  bool was_begun(const std::string& key) const;  // by an earlier process of this file
  void begin(const std::string& key, const std::string& line);
  // `complaints` empty: it was right.
  void end(const std::string& key, const std::vector<cli::Comparison>& comparisons,
           const std::vector<std::string>& complaints);

 private:
  Record();
  void write(const std::string& text);

  std::string path_;
  std::vector<std::string> begun_;
};

// Ends the process with status 3 if the GPU can't be used any more: what follows would fail for
// that reason alone.
void stop_if_the_gpu_is_lost(const std::string& key);

}  // namespace fovea::gpu_tests
