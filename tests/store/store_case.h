// What the tests of the store share: a folder that goes away again, keys and blobs, a plans on a
// folder, and processes that end with a number.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>

#include "base/log.h"
#include "store/plan_store.h"

namespace fovea::store::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string form = (std::filesystem::temp_directory_path() / "fovea-test-XXXXXX").string();
    if (::mkdtemp(form.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = form;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path(const std::string& name = "") const {
    return name.empty() ? path_ : path_ + "/" + name;
  }

 private:
  std::string path_;
};

inline Key key_of(const std::string& line) { return {"fake", "fake 1.0 sm_90", line + "\nmore"}; }
inline Blob blob_of(const std::string& text) { return {text.begin(), text.end()}; }
inline std::string text_of(const Blob& blob) { return {blob.begin(), blob.end()}; }

inline Settings settings_for(const std::string& folder) {
  Settings out;
  out.folder.path = folder;
  return out;
}

inline std::string file_of(const std::string& folder, const Key& key) {
  return folder + "/" + name_of(key) + blob_suffix;
}

inline std::string read_file(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}
inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::size_t count_files(const std::string& folder, const std::string& suffix = "") {
  std::size_t count = 0;
  for (const auto& one : std::filesystem::directory_iterator(folder)) {
    count += one.path().string().ends_with(suffix);
  }
  return count;
}

// The work in a process of its own, which leaves with what it returns; -1 if that throws.
inline pid_t start_process(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  int code = 255;
  try {
    code = work();
  } catch (...) {
  }
  ::_exit(code);
}
// What it left with; 1000 and the number of the signal that ended it.
inline int wait_for(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// As a user without rights, so that permissions count: the superuser becomes `nobody`.
constexpr unsigned nobody = 65534;
inline int run_without_rights(const std::function<int()>& work) {
  return wait_for(start_process([&] {
    if (::geteuid() == 0 && (::setgid(nobody) != 0 || ::setuid(nobody) != 0)) return 254;
    return work();
  }));
}

// Every line that the log gets while it lives.
class Log {
 public:
  Log() {
    set_log([](void* self,
               const char* line) { static_cast<Log*>(self)->text_ += line + std::string("\n"); },
            this);
  }
  ~Log() { set_log(nullptr, nullptr); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace fovea::store::testing
