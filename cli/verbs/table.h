// Columns of text, aligned: what `run` and `bench` print.
#pragma once

#include <string>
#include <vector>

namespace fovea::cli {

class Table {
 public:
  explicit Table(std::vector<std::string> heads) : rows_{std::move(heads)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;  // two spaces between columns, none at the end of a line

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string number_text(double x, int digits = 3);  // 0.00123, 4.56e-08
std::string time_text(double seconds);              // 1.23 ms
std::string bytes_text(double bytes);               // 4.5 MiB
std::string rate_text(double flops);                // 12.3 GFLOP/s

// Rewrites the line "work 45 %" on standard error, if that is a terminal.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(double share);

 private:
  std::string what_;
  bool terminal_, shown_ = false;
};

}  // namespace fovea::cli
