// Problem: everything that says which attention this is. A plain value, which is the cache key, the
// log line, the test name and the command-line argument. What differs from call to call (pointers,
// values) is in Bindings.
//
// attention/problem_text prints it as the problem line and reads it back; attention/validate holds
// every rule between its fields; its flags and numbers are listed in fovea/fields.def.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "ir/program.h"

namespace fovea {

// A tangent is the derivative of a forward and of its backward along a direction.
enum class Direction : std::uint8_t { Forward, Backward, Tangent };

// How tensors lie in memory unless strides say otherwise. Thd is packed: [T, H, D], with cumulative
// lengths bound per call.
enum class Layout : std::uint8_t { Bhsd, Bshd, Sbhd, Thd };

// Who draws the dropout mask: the portable Philox of attention/philox, the same in every engine, or
// the engine's own generator (forward and backward are then pinned to that engine).
enum class Rng : std::uint8_t { Portable, Engine };

// How exact the engine's own arithmetic must be; decisions are always exact.
enum class Precision : std::uint8_t { Default, Strict };

// Queries have H heads, keys and values Hkv; H is a multiple of Hkv. Under Thd, sq and skv are the
// longest sequences, and t_q and t_k the rows of the packed tensors. Zero is valid.
struct Sizes {
  std::int64_t b = 1, h = 1, hkv = 1, sq = 1, skv = 1, d = 1, dv = 1;
  std::int64_t t_q = 0, t_k = 0;
  bool operator==(const Sizes&) const = default;
};

// Strides in elements by batch, head, position, feature; the batch stride is 0 under Thd.
struct Strides {
  std::int64_t b = 0, h = 0, s = 0, d = 0;
  std::array<std::int64_t, 4> list() const { return {b, h, s, d}; }
  bool operator==(const Strides&) const = default;
};

// One of the eight tensors over positions and features.
struct TensorSpec {
  DType dtype = DType::F32;
  std::optional<Strides> strides;  // absent: dense in the Problem's layout
  bool operator==(const TensorSpec&) const = default;
};

struct Problem {
  Direction direction = Direction::Forward;
  Layout layout = Layout::Bhsd;
  Sizes sizes;
  TensorSpec q, k, v, o;
  TensorSpec grad_o, grad_q, grad_k, grad_v;  // of a Backward or a Tangent

  ir::Program program;
  // How captured tensors lie, by slot; empty, one or all: dense, last index fastest.
  std::vector<std::vector<std::int64_t>> tensor_strides;
  std::optional<double> scale;  // absent: 1 / sqrt(d); an f32 unless the tensors are f64

  float dropout = 0;  // probability
  Rng rng = Rng::Portable;
  Precision precision = Precision::Default;

#define FOVEA_FLAG(field, config) bool field = false;
#define FOVEA_NUMBER(name) std::int32_t name = 0;
#include "fovea/fields.def"

  // Which gradients a Backward writes, or a Tangent the change of. Captured things by slot; i32 and
  // bool ones can have none.
  bool want_q = true, want_k = true, want_v = true, want_sink = false;
  std::vector<bool> want_tensors, want_scalars;

  bool operator==(const Problem&) const = default;
  std::uint64_t hash() const;
};

bool wants_gradients(const Problem& problem);

// The outputs besides o that a forward asks for and that are not among `written`; by their names in
// fovea/fields.def, with commas. For engines that do not write all of them.
std::string outputs_beyond(const Problem& problem, std::initializer_list<std::string_view> written);

// What float literals, scalars and the scale are: f32, or doubles if the tensors are f64.
ir::Literals literals_of(DType dtype);

// The eight tensors by name, for loops over them. Which sizes each has follows from its name.
struct NamedTensor {
  const char* name;  // q, k, v, o, do, dq, dk, dv
  TensorSpec Problem::* spec;
  bool of_keys;    // positions and heads of K rather than Q
  bool of_values;  // dv features rather than d
  bool output;     // written: o forward; dq, dk, dv backward
};
const std::array<NamedTensor, 8>& named_tensors();
bool takes_part(const Problem& problem, const NamedTensor& tensor);  // in this direction, as wanted
std::int64_t heads_of(const Sizes& sizes, const NamedTensor& tensor);
std::int64_t length_of(const Sizes& sizes, const NamedTensor& tensor);
std::int64_t features_of(const Sizes& sizes, const NamedTensor& tensor);
Strides dense_strides(Layout layout, const Sizes& sizes, const NamedTensor& tensor);
Strides strides_of(const Problem& problem, const NamedTensor& tensor);  // given or dense

// Sets every want_ field of a Backward whose program is already there from a list of names, such as
// "q,k,v,slopes,softcap,sink", of a problem line or the C interface. Throws InvalidArgument for a
// name that is not known, is given twice, or has no gradient (i32, bool).
void want_gradients(Problem& problem, std::string_view names);

// The list that want_gradients reads back; "q,k,v" by default.
std::string wanted_gradients(const Problem& problem);

// Whether the gradient of a slot is wanted; slots beyond the list (lifted literals) are not.
inline bool wanted(const std::vector<bool>& list, std::size_t slot) {
  return slot < list.size() && list[slot];
}

}  // namespace fovea
