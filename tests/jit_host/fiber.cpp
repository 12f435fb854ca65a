#include "tests/jit_host/fiber.h"

#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace fovea::on_host {
namespace {

namespace context = boost::context::detail;

[[maybe_unused]] Fiber* entering = nullptr;  // who begins: one thread of the host runs fibers

}  // namespace

struct Fiber::Arrival {
  static void first(context::transfer_t from) {
    Fiber& here = *entering;
    arrive(here, from.data, from.fctx);
    here.entry_();
  }
};

void Fiber::start(void* stack, std::size_t bytes, Entry entry) {
  stack_ = stack;
  stack_bytes_ = bytes;
  entry_ = entry;
  fake_stack_ = nullptr;
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack, bytes);
#endif
  context_ = context::make_fcontext(static_cast<char*>(stack) + bytes, bytes, &Arrival::first);
}

// `here` runs again, or for the first time: the one that switched to it is where it stopped.
void Fiber::arrive(Fiber& here, void* from, void* from_context) {
  auto& before = *static_cast<Fiber*>(from);
  before.context_ = from_context;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(here.fake_stack_, &before.stack_, &before.stack_bytes_);
#else
  static_cast<void>(here);
#endif
}

void Fiber::switch_from_to(Fiber& from, Fiber& to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.stack_, to.stack_bytes_);
#endif
  entering = &to;
  const context::transfer_t back = context::jump_fcontext(to.context_, &from);
  arrive(from, back.data, back.fctx);
}

Stacks::Stacks()
    : memory_(mmap(nullptr, most * (bytes + page), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
  if (memory_ == MAP_FAILED) throw std::bad_alloc();
  // The page above each stack is the one below the next.
  for (std::size_t i = 0; i < most; ++i) {
    mprotect(static_cast<char*>((*this)[i]) + bytes, page, PROT_NONE);
  }
}

}  // namespace fovea::on_host
