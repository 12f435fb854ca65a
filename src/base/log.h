// The verbose log: one line per plan built and per call, each as a `fovea run` command; that of a
// call runs as it stands. Silent unless FOVEA_VERBOSE is set (then standard error) or a program
// asked for the lines. Not for errors: those are exceptions and statuses.
#pragma once

#include <mutex>
#include <set>
#include <string>

namespace fovea {

using LogCallback = void (*)(void* context, const char* line);

// Sends the lines there instead of to standard error, whether or not FOVEA_VERBOSE is set; null:
// back to the default. A call that is under way in another thread may still use the old one.
void set_log(LogCallback log, void* context);

// Whether anyone listens. Nanoseconds: ask before making a line.
bool log_enabled();

// One line, without the newline.
void log_line(const std::string& line);

// Lines that are logged once each, as long as it lives: at most 64 different ones.
class LogOnce {
 public:
  void say(const std::string& line);

 private:
  std::mutex mutex_;
  std::set<std::string> said_;
};

}  // namespace fovea
