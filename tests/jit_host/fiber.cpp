#include "tests/jit_host/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// Saves the registers that a call preserves on this stack, and loads those of another stack. All
// fibers share the rounding mode. All switches have the same call site, so that the processor
// predicts the `ret`.
extern "C" void fovea_switch_stacks(void** save, void* to);
asm(R"(
.text
.hidden fovea_switch_stacks
.globl fovea_switch_stacks
.type fovea_switch_stacks, @function
fovea_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size fovea_switch_stacks, . - fovea_switch_stacks
)");
#endif

namespace fovea::on_host {
namespace {

// Of the last switch; one thread of the host runs fibers at a time.
Fiber* came_from = nullptr;
Fiber* came_to = nullptr;

}  // namespace

void Fiber::start(void* stack, std::size_t bytes, Entry entry) {
  stack_ = stack;
  stack_bytes_ = bytes;
  entry_ = entry;
  fake_stack_ = nullptr;
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack, bytes);
#endif
#if defined(__x86_64__)
  // From the end: no return address, where to begin, six registers.
  auto* top = reinterpret_cast<std::uintptr_t*>(static_cast<char*>(stack) + bytes / 16 * 16);
  *--top = 0;
  *--top = reinterpret_cast<std::uintptr_t>(&begin);
  for (int i = 0; i < 6; ++i) *--top = 0;
  top_ = top;
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack;
  context_.uc_stack.ss_size = bytes;
  context_.uc_link = nullptr;
  makecontext(&context_, &begin, 0);
#endif
}

void Fiber::begin() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &came_from->stack_, &came_from->stack_bytes_);
#endif
  came_to->entry_();
}

void Fiber::switch_from_to(Fiber& from, Fiber& to) {
  if (&from == &to) return;  // the registers that it has saved are those of an earlier switch
  came_from = &from;
  came_to = &to;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.stack_, to.stack_bytes_);
#endif
#if defined(__x86_64__)
  fovea_switch_stacks(&from.top_, to.top_);
#else
  swapcontext(&from.context_, &to.context_);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from.fake_stack_, &came_from->stack_, &came_from->stack_bytes_);
#endif
}

Stacks::Stacks()
    : memory_(mmap(nullptr, most * (bytes + page), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
  if (memory_ == MAP_FAILED) throw std::bad_alloc();
  for (std::size_t i = 0; i < most; ++i) {
    mprotect(static_cast<char*>((*this)[i]) + bytes, page, PROT_NONE);
  }
}

}  // namespace fovea::on_host
