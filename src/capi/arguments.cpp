#include "capi/arguments.h"

#include <algorithm>

#include "base/error.h"

namespace fovea::capi {
namespace {

// No version will have a larger struct; a larger size is memory that the caller never set.
constexpr std::size_t largest_struct = 1 << 16;

[[noreturn]] void refuse_size(std::size_t size, const StructName& name, const std::string& rule) {
  throw InvalidArgument(std::string(name.argument) + ".struct_size is " + std::to_string(size) +
                        "; " + rule);
}

}  // namespace

void need(const void* pointer, const char* name) {
  if (pointer == nullptr) throw InvalidArgument(std::string(name) + " is NULL");
}

void check_struct(const void* given, const StructSize& sizes, const StructName& name,
                  bool is_output) {
  std::size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  const std::size_t known_size = sizes.known;
  if (size == known_size) return;
  const auto refuse = [&](const std::string& what) {
    refuse_size(size, name,
                what + "set it to sizeof(" + std::string(name.type) + "), " +
                    std::to_string(known_size) + " here");
  };
  if (size == 0) refuse("");
  if (size < (sizes.first == 0 ? known_size : sizes.first)) refuse("too small: ");
  if (size > largest_struct) refuse("too large: ");
  if (is_output || size <= known_size) return;
  const auto* bytes = static_cast<const unsigned char*>(given);
  if (std::any_of(bytes + known_size, bytes + size, [](unsigned char x) { return x != 0; })) {
    refuse_size(size, name,
                "it is a later version's and sets fields that Fovea " +
                    std::string(fovea_version()) + " does not know (beyond " +
                    std::to_string(known_size) + " bytes); leave them zero or update Fovea");
  }
}

void check_flags(std::uint32_t flags, std::uint32_t known, const char* names) {
  if ((flags & ~known) == 0) return;
  throw InvalidArgument("flags is " + std::to_string(flags) + "; it may have " + names);
}

ArgumentPlace::operator std::string() const {
  return std::string(argument) + "." + list + "[" + std::to_string(index) + "]" + field;
}

void ArgumentPlace::refuse(const std::string& text) const {
  throw InvalidArgument(std::string(*this) + text);
}

void refuse_enum(std::int64_t value, std::int64_t count, const std::string& name,
                 const char* type) {
  throw InvalidArgument(name + " is " + std::to_string(value) + ", which is no " + type +
                        " (0 to " + std::to_string(count - 1) + ")");
}

Sizes to_sizes(const fovea_sizes& s) {
  return {s.b,   s.h,  s.hkv == 0 ? s.h : s.hkv, s.sq, s.skv, s.d, s.dv == 0 ? s.d : s.dv,
          s.t_q, s.t_k};
}

fovea_sizes from_sizes(const Sizes& s) {
  return {s.b, s.h, s.hkv, s.sq, s.skv, s.d, s.dv, s.t_q, s.t_k};
}

}  // namespace fovea::capi
