// Bad bindings of the C interface: a valid call with one thing broken, and the whole text it must
// be refused with. Rules of the library's own Bindings: tests/attention/validate_bindings_test.cpp.
#include <gtest/gtest.h>

#include <cctype>
#include <cstring>
#include <functional>
#include <limits>

#include "tests/capi/c_call.h"

namespace {

using namespace fovea::testing;

struct BadBinding {
  const char* line;
  std::function<void(CCall&)> breaks;
  const char* expected;
};

void* misaligned(void* pointer) { return static_cast<char*>(pointer) + 1; }

// Addresses in texts are cut out: they differ from run to run.
std::string without_addresses(std::string text) {
  for (std::size_t at = text.find("0x"); at != std::string::npos; at = text.find("0x", at + 2)) {
    std::size_t end = at + 2;
    while (end < text.size() && std::isxdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
    text.erase(at + 2, end - at - 2);
  }
  return text;
}

void check(const std::vector<BadBinding>& cases) {
  for (const BadBinding& bad : cases) {
    SCOPED_TRACE(std::string(bad.line) + "\n  expected: " + bad.expected);
    CCall call(bad.line);
    ASSERT_EQ(call.outcome(), "accepted");
    bad.breaks(call);
    EXPECT_EQ(call.run(), FOVEA_INVALID_ARGUMENT);
    EXPECT_EQ(without_addresses(fovea_last_error()), bad.expected);
  }
}

const char* const plain = "h=2 sq=8 d=4";

TEST(BadBindings, Tensors) {
  check({
      {plain, [](CCall& c) { c.bindings.q.data = nullptr; }, "q: must not be null"},
      {plain, [](CCall& c) { c.bindings.q.data = misaligned(c.bindings.q.data); },
       "q=0x: must be aligned to 4 bytes"},
      {plain, [](CCall& c) { c.bindings.o.data = c.bindings.q.data; },
       "o: is written, but shares memory with q"},
      {plain, [](CCall& c) { c.bindings.q.stride[0] = -5; },
       "q.strides=-5,0,0,0: strides must be 0 or more"},
      {plain, [](CCall& c) { c.bindings.o.stride[0] = FOVEA_ZERO_STRIDE; },
       "o.strides=0,0,0,0: elements of an output must not overlap (extents 1,2,8,4)"},
      {plain,
       [](CCall& c) {
         c.bindings.q.stride[0] = c.bindings.q.stride[1] = std::int64_t{1} << 62;
         c.bindings.q.stride[2] = std::int64_t{1} << 62;
       },
       "q.strides=4611686018427387904,4611686018427387904,4611686018427387904,0: reaches further than 64 bits can count"},
      {plain, [](CCall& c) { c.bindings.grad_o = c.bindings.q; },
       "grad_o=0x: is bound, but this problem has none"},
      {"h=2 sq=8 d=4 dtype=f64", [](CCall& c) { c.bindings.q.data = misaligned(c.memory("q")); },
       "q=0x: must be aligned to 8 bytes"},
  });
}

TEST(BadBindings, ValuesAndWorkspace) {
  static const fovea_sizes huge{1, 2, 2, std::int64_t{1} << 40, 8, 4, 4, 0, 0};
  static const fovea_sizes overflowing{
      std::int64_t{1} << 62, std::int64_t{1} << 30, 0, 8, 8, std::int64_t{1} << 30, 0, 0, 0};
  static const fovea_executor unsized{0, nullptr, 1, nullptr};
  static const fovea_executor no_threads{
      sizeof(fovea_executor), nullptr, -2,
      [](void*, std::size_t, void (*)(void*, std::size_t), void*) {}};
  static const float infinite = std::numeric_limits<float>::infinity();
  check({
      {plain, [](CCall& c) { c.bindings.scale = {1, 1, &infinite}; }, "scale=inf: must be finite"},
      {plain, [](CCall& c) { c.bindings.h_offset = {-1, 1, nullptr}; },
       "h_offset=-1: must be 0 or more"},
      {plain, [](CCall& c) { c.bindings.sizes = &huge; }, "sq=1099511627776: must be below 2^31"},
      {plain, [](CCall& c) { c.bindings.sizes = &overflowing; },
       "b=4611686018427387904: must be below 2^31"},
      {plain, [](CCall& c) { c.bindings.executor = &unsized; },
       "bindings.executor.struct_size is 0; set it to sizeof(fovea_executor), 32 here"},
      {plain, [](CCall& c) { c.bindings.executor = &no_threads; },
       "bindings.executor.threads is -2; it must be 1 or more (0: 1)"},
      {plain, [](CCall& c) { c.bindings.struct_size = 0; },
       "bindings.struct_size is 0; set it to sizeof(fovea_bindings), 696 here"},
      {plain, [](CCall& c) { c.bindings.struct_size = 100; },
       "bindings.struct_size is 100; too small: set it to sizeof(fovea_bindings), 696 here"},
  });
}

TEST(BadBindings, ATooSmallWorkspaceIsToldWhatItNeeds) {
  CCall call(plain);
  const std::size_t needed = call.bindings.workspace_bytes--;
  EXPECT_EQ(call.run(), FOVEA_INVALID_ARGUMENT);
  EXPECT_EQ(fovea_last_error(), "workspace_bytes=" + std::to_string(needed - 1) +
                                    ": these sizes need " + std::to_string(needed));
}

const char* const captured =
    "h=2 sq=8 d=4 mod=\"score * x + t[h, q]\" scalar=x tensor=t:f32[H,Sq] ";
const char* const with_gradients =
    "direction=backward h=2 sq=8 d=4 mod=\"score * x + t[h, q]\" scalar=x tensor=t:f32[H,Sq] "
    "grads=t,x";

TEST(BadBindings, Captured) {
  check({
      {captured, [](CCall& c) { c.bindings.tensor_count = 0; },
       "bindings.tensors: the captured tensor 't' is not bound"},
      {captured, [](CCall& c) { c.bindings.scalar_count = 0; },
       "bindings.scalars: the captured scalar 'x' is not bound and has no default"},
      {captured, [](CCall& c) { c.bindings.tensors = nullptr; },
       "bindings.tensors is NULL, but its count is 1"},
      {captured, [](CCall& c) { c.bindings.scalars = nullptr; },
       "bindings.scalars is NULL, but its count is 1"},
      {captured,
       [](CCall& c) {
         c.bindings.tensor_count = 1000;
         c.tensors.push_back(c.tensors[0]);
         c.bindings.tensors = c.tensors.data();
       },
       "bindings.tensors[1]: 't' is bound twice"},
      {captured, [](CCall& c) { c.tensors[0].name = nullptr; }, "bindings.tensors[0].name is NULL"},
      {captured, [](CCall& c) { c.tensors[0].name = "tt"; },
       "bindings.tensors[0]: the program captures no tensor 'tt'; did you mean 't'?"},
      {captured, [](CCall& c) { c.scalars[0].name = "xx"; },
       "bindings.scalars[0]: the program captures no scalar 'xx'; did you mean 'x'?"},
      {captured, [](CCall& c) { c.scalars[0].name = nullptr; }, "bindings.scalars[0].name is NULL"},
      {captured, [](CCall& c) { c.tensors[0].array.data = nullptr; },
       "bindings.tensors[0].array.data is NULL ('t')"},
      {captured, [](CCall& c) { c.tensors[0].array.data = misaligned(c.memory("t")); },
       "tensor t=0x: must be aligned to 4 bytes"},
      {captured, [](CCall& c) { c.tensors[0].array.rank = 3; },
       "bindings.tensors[0].array.rank is 3, but 't' is declared with 2 dimensions"},
      {captured, [](CCall& c) { c.tensors[0].array.rank = -2; },
       "bindings.tensors[0].array.rank is -2, but 't' is declared with 2 dimensions"},
      {captured,
       [](CCall& c) {
         c.tensors[0].array.rank = 2;
         c.tensors[0].array.extent[0] = -2;
       },
       "bindings.tensors[0].array.extent[0] is -2; it must be 0 or more"},
      {captured,
       [](CCall& c) {
         c.tensors[0].array.rank = 2;
         c.tensors[0].array.extent[0] = 2;
         c.tensors[0].array.extent[1] = 7;
       },
       "tensor t=[2,7]: must have the declared extents [2,8]"},
      {captured, [](CCall& c) { c.tensors[0].array.dtype = FOVEA_BF16; },
       "bindings.tensors[0].array.dtype is bf16, but 't' is declared f32"},
      {captured,
       [](CCall& c) {
         const int none = 77;
         std::memcpy(&c.tensors[0].array.dtype, &none, sizeof none);
       },
       "bindings.tensors[0].array.dtype is 77, which is no fovea_dtype (0 to 8)"},
      {captured, [](CCall& c) { c.tensors[0].array.stride[1] = -1; },
       "tensor t=0,-1: strides must be 0 or more"},
      {with_gradients, [](CCall& c) { c.tensors[0].gradient.rank = 1; },
       "bindings.tensors[0].gradient.rank is 1; it must be 0 or that of the array, 2"},
      {with_gradients,
       [](CCall& c) {
         c.tensors[0].gradient.rank = 2;
         c.tensors[0].gradient.extent[1] = 9;
       },
       "bindings.tensors[0].gradient.extent[1] is 9; it must be 0 or that of the array, 8"},
      {with_gradients, [](CCall& c) { c.tensors[0].gradient.stride[1] = FOVEA_ZERO_STRIDE; },
       "gradient of tensor t=[0,0]: elements of an output must not overlap (extents [2,8])"},
      {"h=2 sq=8 d=4 mod=\"score * n\" scalar=n:i32=2", [](CCall& c) { c.scalars[0].value = 1.5; },
       "bindings.scalars[0].value is 1.500000, but 'n' is declared i32"},
      {"h=2 sq=8 d=4 mod=\"score * n\" scalar=n:i32=2", [](CCall& c) { c.scalars[0].value = 1e10; },
       "bindings.scalars[0].value is 10000000000.000000, but 'n' is declared i32"},
  });
}

}  // namespace
