// The first check of what a C caller passes: pointers, versioned structs, enumerations. What the
// values mean is checked by attention/validate.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "attention/problem.h"
#include "base/dtype.h"
#include "fovea/fovea.h"

namespace fovea::capi {

// Throws InvalidArgument: "<name> is NULL".
void need(const void* pointer, const char* name);

// A struct's size as its caller sees it: refused if it is 0 or smaller than the first version's.
// A larger one is a later version's: fine as long as what this version does not know is zero.
struct StructName {
  const char* argument;  // "config"
  const char* type;      // "fovea_problem_config"
};
struct StructSize {
  std::size_t known;      // here and now
  std::size_t first = 0;  // in the first version; 0: the same
};
void check_struct(const void* given, const StructSize& size, const StructName& name,
                  bool is_output);

// What an earlier version does not have is zero. `first_size`: of the first version, if the
// struct has grown since.
template <class T>
T read_struct(const T* given, const StructName& name, std::size_t first_size = 0) {
  need(given, name.argument);
  check_struct(given, {sizeof(T), first_size}, name, /*is_output=*/false);
  T copy{};
  std::memcpy(&copy, given, given->struct_size < sizeof(T) ? given->struct_size : sizeof(T));
  return copy;
}

// Makes a struct that the caller gets ready to be filled: everything but its size becomes zero,
// also what only a later version knows.
template <class T>
void clear_struct(T* out, const StructName& name, std::size_t first_size = 0) {
  need(out, name.argument);
  check_struct(out, {sizeof(T), first_size}, name, /*is_output=*/true);
  const std::size_t size = out->struct_size;
  std::memset(static_cast<void*>(out), 0, size);
  out->struct_size = size;
}

// The same for a struct that has grown since its first version: as much of `filled` as its caller
// knows.
template <class T>
void write_struct(T* out, const T& filled, const StructName& name, std::size_t first_size) {
  clear_struct(out, name, first_size);
  const std::size_t size = out->struct_size;
  std::memcpy(out, &filled, size < sizeof(T) ? size : sizeof(T));
  out->struct_size = size;
}

// The number in an enumeration, which may be none of its enumerators; so it is not read as one.
template <class Enum>
std::int64_t raw(const Enum& field) {
  static_assert(sizeof(Enum) == sizeof(std::int32_t));
  std::int32_t value = 0;
  std::memcpy(&value, &field, sizeof value);
  return value;
}

// Throws InvalidArgument for a flag that is not among the known ones: "FOVEA_EXPLAIN_JSON (1)".
void check_flags(std::uint32_t flags, std::uint32_t known, const char* names);

// The place of a value in a list, to be written out only if something is wrong with it:
// "bindings.tensors[1].array.dtype".
struct ArgumentPlace {
  const char* argument = "";
  const char* list = "";
  std::size_t index = 0;
  const char* field = "";
  explicit operator std::string() const;
  // "bindings.tensors[1].array.rank is 2, but ..."
  [[noreturn]] void refuse(const std::string& text) const;
};

// The enumerators of the C interface count up from 0 as those inside do. `name` is a text or an
// ArgumentPlace.
[[noreturn]] void refuse_enum(std::int64_t value, std::int64_t count, const std::string& name,
                              const char* type);
template <class Inside, class Enum, class Name>
Inside to_enum(const Enum& field, std::int64_t count, const Name& name, const char* type) {
  const std::int64_t value = raw(field);
  if (value < 0 || value >= count) refuse_enum(value, count, std::string(name), type);
  return static_cast<Inside>(value);
}

template <class Name>
DType to_dtype(const fovea_dtype& field, const Name& name, DType otherwise) {
  const auto value = to_enum<std::int32_t>(field, FOVEA_BOOL + 1, name, "fovea_dtype");
  return value == FOVEA_DTYPE_DEFAULT ? otherwise : static_cast<DType>(value - 1);
}
inline fovea_dtype from_dtype(DType dtype) {
  return static_cast<fovea_dtype>(static_cast<int>(dtype) + 1);
}

// hkv 0 becomes h, and dv 0 becomes d.
Sizes to_sizes(const fovea_sizes& sizes);
fovea_sizes from_sizes(const Sizes& sizes);

// Strides as C callers write them: all zero means "not given", so a tensor whose strides are all
// zero says FOVEA_ZERO_STRIDE in one of them. Reading is false and leaves `out` alone if none are
// given.
inline bool read_strides(std::span<const std::int64_t> given, std::span<std::int64_t> out) {
  const auto is_zero = [](std::int64_t stride) { return stride == 0; };
  if (std::ranges::all_of(given, is_zero)) return false;
  std::ranges::replace_copy(given, out.begin(), FOVEA_ZERO_STRIDE, std::int64_t{0});
  return true;
}

inline void write_strides(std::span<const std::int64_t> strides, std::span<std::int64_t> out) {
  std::ranges::copy(strides, out.begin());
  const auto is_zero = [](std::int64_t stride) { return stride == 0; };
  if (std::ranges::all_of(strides, is_zero)) out.front() = FOVEA_ZERO_STRIDE;
}

}  // namespace fovea::capi
