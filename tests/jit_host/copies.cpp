#include "tests/jit_host/copies.h"

#include <cstdint>

#include "tests/jit_host/mistake.h"

namespace fovea::on_host {
namespace {

void check(const Copy& copy, const User& user, const Where& where) {
  const char* problem = nullptr;
  const auto from = reinterpret_cast<std::uintptr_t>(copy.from);
  if (copy.valid < 0 || copy.valid > copy.bytes) problem = " valid bytes are not 0 to ";
  if (copy.valid > 0 && from % static_cast<unsigned>(copy.bytes) != 0) {
    problem = " valid bytes come from an address that is no multiple of ";
  }
  if (problem == nullptr) return;
  throw Mistake("copy_async of thread " + std::to_string(user.thread) + " at " + text(where) +
                ": " + std::to_string(copy.valid) + problem + std::to_string(copy.bytes));
}

}  // namespace

void Copies::clear() {
  queue_.clear();
  first_ = 0;
  group_ = 0;
}

void Copies::issue(SharedMemory& memory, const Copy& copy, const User& user, Where where) {
  check(copy, user, where);
  memory.begin_copy(copy.to, copy.bytes, user, where);
  if (copy.at_once) memory.write_copy(copy.to, copy.from, copy.valid, copy.bytes);
  queue_.push_back({copy, group_, where});
}

void Copies::wait(SharedMemory& memory, int pending, const User& user) {
  for (; first_ < queue_.size() && queue_[first_].group < group_ - pending; ++first_) {
    const auto& [copy, group, where] = queue_[first_];
    if (!copy.at_once) memory.write_copy(copy.to, copy.from, copy.valid, copy.bytes);
    memory.end_copy(copy.to, copy.bytes, user, where);
  }
  if (first_ == queue_.size()) {
    queue_.clear();
    first_ = 0;
  }
}

}  // namespace fovea::on_host
