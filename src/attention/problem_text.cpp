#include "attention/problem_text.h"

#include <algorithm>
#include <array>
#include <limits>

#include "attention/extents.h"
#include "attention/line_words.h"
#include "attention/problem.h"
#include "attention/refuse.h"
#include "attention/rules.h"
#include "attention/validate.h"
#include "base/words.h"
#include "ir/print.h"
#include "ir/program.h"

namespace fovea {
namespace {

// Keys that only a backward has. In a line for a forward alone they would be dropped in silence.
const std::vector<std::string> backward_keys{"grads",      "dlse",       "do_dtype",  "grad_dtype",
                                             "dq_dtype",   "dk_dtype",   "dv_dtype",  "do_strides",
                                             "dq_strides", "dk_strides", "dv_strides"};

const std::vector<std::string> layouts{"bhsd", "bshd", "sbhd", "thd"};  // as Layout

const std::vector<std::string> output_keys{
#define FOVEA_OUTPUT(name, extent, saved) #name,
#include "fovea/fields.def"
};

// The keys of queries or of keys, where their values go, and the sizes that bound them.
struct SequenceKeys {
  Sequences::Names keys;
  std::vector<std::int32_t> LineValues::*lengths, LineValues::*starts, LineValues::*offsets;
  std::int64_t Sizes::*longest, Sizes::*rows;
};
constexpr std::array<SequenceKeys, 2> sides{{
    {{"qlens", "cu_q", "q_offset", "sq", "tq"},
     &LineValues::q_lengths,
     &LineValues::q_starts,
     &LineValues::q_offsets,
     &Sizes::sq,
     &Sizes::t_q},
    {{"klens", "cu_k", "k_offset", "skv", "tk"},
     &LineValues::k_lengths,
     &LineValues::k_starts,
     &LineValues::k_offsets,
     &Sizes::skv,
     &Sizes::t_k},
}};

LineValues read_values(const LineWords& words, Layout layout) {
  LineValues values;
  for (const SequenceKeys& side : sides) {
    if (layout == Layout::Thd && !words.has(side.keys.starts)) {
      refuse(side.keys.starts, "layout=thd needs it: the starts of the sequences, or 'bound'");
    }
    if (layout != Layout::Thd && words.has(side.keys.starts)) {
      refuse(side.keys.starts, words.text(side.keys.starts, ""), "only layout=thd has starts");
    }
    values.*side.lengths = words.list(side.keys.lengths);
    values.*side.starts = words.list(side.keys.starts);
    if (words.is_list(side.keys.offsets)) values.*side.offsets = words.list(side.keys.offsets);
  }
  values.seed = words.u64("seed", 1);
  values.offset = words.u64("offset", 0);
  if (values.offset > std::numeric_limits<std::uint32_t>::max()) {
    refuse("offset", values.offset, "must be below 2^32");
  }
  return values;
}

// The number of sequences, if some value comes once per sequence.
std::int64_t counted_batch(const LineValues& values) {
  for (const auto* starts : {&values.q_starts, &values.k_starts}) {
    if (!starts->empty()) return static_cast<std::int64_t>(starts->size()) - 1;
  }
  for (const auto* list :
       {&values.q_lengths, &values.k_lengths, &values.q_offsets, &values.k_offsets}) {
    if (!list->empty()) return static_cast<std::int64_t>(list->size());
  }
  return 1;
}

void check_count(std::string_view key, std::size_t count, std::int64_t expected) {
  if (count == 0 || static_cast<std::int64_t>(count) == expected) return;
  refuse(key, "has " + std::to_string(count) + " numbers, must have " + std::to_string(expected) +
                  ": b, or b + 1 for starts");
}

void check_values(const LineValues& values, const Sizes& sizes) {
  for (const SequenceKeys& side : sides) {
    const auto &lengths = values.*side.lengths, &starts = values.*side.starts,
               &offsets = values.*side.offsets;
    check_count(side.keys.lengths, lengths.size(), sizes.b);
    check_count(side.keys.starts, starts.size(), sizes.b + 1);
    check_count(side.keys.offsets, offsets.size(), sizes.b);
    check_sequences({side.keys, lengths, starts, offsets, sizes.*side.longest, sizes.*side.rows});
  }
}

std::int64_t longest(const std::vector<std::int32_t>& starts, std::int64_t fallback) {
  if (starts.empty()) return fallback;
  std::int64_t most = 0;
  for (std::size_t i = 1; i < starts.size(); ++i) {
    most = std::max(most, std::int64_t{starts[i]} - starts[i - 1]);
  }
  return most;
}

Sizes read_sizes(const LineWords& words, const LineValues& values) {
  Sizes s;
  s.b = words.size("b", counted_batch(values));
  s.h = words.size("h", 1);
  s.hkv = words.size("hkv", s.h);
  s.sq = words.size("sq", longest(values.q_starts, 128));
  s.skv = words.size("skv", longest(values.k_starts, s.sq));
  s.d = words.size("d", 64);
  s.dv = words.size("dv", s.d);
  s.t_q = words.size("tq", values.q_starts.empty() ? 0 : values.q_starts.back());
  s.t_k = words.size("tk", values.k_starts.empty() ? 0 : values.k_starts.back());
  return s;
}

void read_offsets(const LineWords& words, Problem& p) {
  p.has_q_offsets = words.is_bound("q_offset") || words.is_list("q_offset");
  p.has_k_offsets = words.is_bound("k_offset") || words.is_list("k_offset");
  if (!p.has_q_offsets) p.q_offset = words.i32("q_offset", 0);
  if (!p.has_k_offsets) p.k_offset = words.i32("k_offset", 0);
  p.b_offset = words.i32("b_offset", 0);
  p.h_offset = words.i32("h_offset", 0);
  p.h_global = words.i32("h_global", 0);
}

Problem read_shared(const LineWords& words) {
  Problem p;
  p.layout = static_cast<Layout>(words.choice("layout", layouts));
  const DType dtype = words.dtype("dtype", DType::F32);
  p.program = ir::parse_program(words.program(), literals_of(dtype));
  set_tensor_strides(p, words.text("tensor_strides", ""));
  p.device_values = words.choice("values", {"host", "device"}) == 1;
  p.q = {dtype, words.strides("q_strides")};
  p.k = {dtype, words.strides("k_strides")};
  p.v = {dtype, words.strides("v_strides")};
  p.o = {words.dtype("o_dtype", dtype), words.strides("o_strides")};
  if (words.has("scale")) p.scale = words.real("scale", dtype);
  p.has_q_lengths = words.has("qlens");
  p.has_k_lengths = words.has("klens");
  p.sink = words.flag("sink");
#define FOVEA_OPTION(name) p.name = words.flag(#name);
#include "fovea/fields.def"
  p.dropout = words.f32("dropout", 0);
  p.rng = static_cast<Rng>(words.choice("rng", {"portable", "engine"}));
  read_offsets(words, p);
  p.precision = static_cast<Precision>(words.choice("precision", {"default", "strict"}));
  return p;
}

Problem as_forward(Problem p, const LineWords& words, bool with_backward) {
  p.direction = Direction::Forward;
#define FOVEA_OUTPUT(name, extent, saved) p.name = words.flag(#name, saved && with_backward);
#include "fovea/fields.def"
  if (with_backward && !p.lse) refuse("lse", "0", "the backward of direction=both reads it");
  return p;
}

Problem as_backward(Problem p, const LineWords& words, Direction direction) {
  p.direction = direction;
  const DType gradient = words.dtype("grad_dtype", p.q.dtype);
  p.grad_o = {words.dtype("do_dtype", p.q.dtype), words.strides("do_strides")};
  p.grad_q = {words.dtype("dq_dtype", gradient), words.strides("dq_strides")};
  p.grad_k = {words.dtype("dk_dtype", gradient), words.strides("dk_strides")};
  p.grad_v = {words.dtype("dv_dtype", gradient), words.strides("dv_strides")};
  p.grad_lse = words.flag("dlse");
  want_gradients(p, words.text("grads", "q,k,v"));
  return p;
}

void refuse_backward_keys(const LineWords& words) {
  for (const std::string& key : backward_keys) {
    if (!words.has(key)) continue;
    refuse(key, words.text(key, ""), "belongs to a backward; this line has direction=forward");
  }
}

void refuse_forward_outputs(const LineWords& words) {
  for (const std::string& key : output_keys) {
    if (words.flag(key)) {
      refuse(key, "1",
             "is an output of a forward; this line has direction=" + words.text("direction", ""));
    }
  }
}

}  // namespace

ProblemLine parse_problem_line(std::string_view line) {
  enum { forward, backward, tangent, both };
  const LineWords words(line);
  const std::size_t direction =
      words.choice("direction", {"forward", "backward", "tangent", "both"});
  Problem shared = read_shared(words);
  ProblemLine out;
  out.values = read_values(words, shared.layout);
  shared.sizes = read_sizes(words, out.values);
  if (direction == forward) refuse_backward_keys(words);
  if (direction == backward || direction == tangent) refuse_forward_outputs(words);
  if (direction == forward || direction == both) {
    out.forward = as_forward(shared, words, direction == both);
  }
  if (direction != forward) {
    out.backward =
        as_backward(shared, words, direction == tangent ? Direction::Tangent : Direction::Backward);
  }
  for (const std::optional<Problem>* problem : {&out.forward, &out.backward}) {
    if (*problem) validate(**problem);
  }
  check_values(out.values, shared.sizes);
  return out;
}

namespace {

class LinePrinter {
 public:
  void words(const std::string& text) {
    if (!text.empty()) line_ += (line_.empty() ? "" : " ") + text;
  }
  void text(std::string_view key, std::string_view value) { words(join_word(key, value)); }
  template <class T>
  void number(std::string_view key, T value, T fallback) {
    if (value != fallback) text(key, number_text(value));
  }
  void flag(std::string_view key, bool value) {
    if (value) text(key, "1");
  }
  void dtype(std::string_view key, DType value, DType fallback) {
    if (value != fallback) text(key, dtype_name(value));
  }
  void bound(std::string_view key, bool value) {
    if (value) text(key, "bound");
  }
  const std::string& line() const { return line_; }

 private:
  std::string line_;
};

void print_sizes(LinePrinter& out, const Problem& p) {
  const Sizes& s = p.sizes;
  out.number<std::int64_t>("b", s.b, 1);
  out.number<std::int64_t>("h", s.h, 1);
  out.number("hkv", s.hkv, s.h);
  out.number<std::int64_t>("sq", s.sq, 128);
  out.number("skv", s.skv, s.sq);
  out.number<std::int64_t>("d", s.d, 64);
  out.number("dv", s.dv, s.d);
  out.number<std::int64_t>("tq", s.t_q, 0);
  out.number<std::int64_t>("tk", s.t_k, 0);
  out.bound("cu_q", p.layout == Layout::Thd);
  out.bound("cu_k", p.layout == Layout::Thd);
  out.bound("qlens", p.has_q_lengths);
  out.bound("klens", p.has_k_lengths);
}

// A forward's gradients have no types: its specs are default.
void print_dtypes(LinePrinter& out, const Problem& p) {
  const DType own = p.q.dtype;
  out.dtype("o_dtype", p.o.dtype, own);
  if (p.direction == Direction::Forward) return;
  out.dtype("do_dtype", p.grad_o.dtype, own);
  if (p.grad_q.dtype == p.grad_k.dtype && p.grad_k.dtype == p.grad_v.dtype) {
    out.dtype("grad_dtype", p.grad_q.dtype, own);
    return;
  }
  out.dtype("dq_dtype", p.grad_q.dtype, own);
  out.dtype("dk_dtype", p.grad_k.dtype, own);
  out.dtype("dv_dtype", p.grad_v.dtype, own);
}

void print_strides(LinePrinter& out, const Problem& p) {
  for (const NamedTensor& tensor : named_tensors()) {
    const std::optional<Strides>& s = (p.*tensor.spec).strides;
    if (!s) continue;
    out.text(std::string(tensor.name) + "_strides", number_list(s->list()));
  }
}

void print_outputs(LinePrinter& out, const Problem& p) {
  if (p.direction != Direction::Forward) {
    if (const std::string grads = wanted_gradients(p); grads != "q,k,v") out.text("grads", grads);
  }
#define FOVEA_OUTPUT(name, extent, saved) out.flag(#name, p.name);
#include "fovea/fields.def"
  out.flag("dlse", p.grad_lse);
}

void print_offsets(LinePrinter& out, const Problem& p) {
  out.number("b_offset", p.b_offset, 0);
  out.number("h_offset", p.h_offset, 0);
  out.number("q_offset", p.q_offset, 0);
  out.bound("q_offset", p.has_q_offsets);
  out.number("k_offset", p.k_offset, 0);
  out.bound("k_offset", p.has_k_offsets);
  out.number("h_global", p.h_global, 0);
}

}  // namespace

const std::vector<std::string>& problem_keys() {
  static const std::vector<std::string> keys{
      // sizes and sequences
      "direction", "b", "h", "hkv", "sq", "skv", "d", "dv", "tq", "tk", "cu_q", "cu_k", "qlens",
      "klens", "dtype", "layout",
      // formulas and the rest of the definition
      "mod", "mask", "bprop", "tensor", "scalar", "scale", "sink", "dropout", "rng",
      // what is asked for
      "grads",
#define FOVEA_OUTPUT(name, extent, saved) #name,
#include "fovea/fields.def"
      "dlse",
      // positions
      "b_offset", "h_offset", "q_offset", "k_offset", "h_global",
      // types and memory
      "o_dtype", "do_dtype", "grad_dtype", "dq_dtype", "dk_dtype", "dv_dtype", "q_strides",
      "k_strides", "v_strides", "o_strides", "do_strides", "dq_strides", "dk_strides", "dv_strides",
      "tensor_strides", "values",
  // how it is run
#define FOVEA_OPTION(name) #name,
#include "fovea/fields.def"
      "precision", "seed", "offset"};
  return keys;
}

std::string print(const Problem& p) {
  LinePrinter out;
  if (p.direction == Direction::Backward) out.text("direction", "backward");
  if (p.direction == Direction::Tangent) out.text("direction", "tangent");
  print_sizes(out, p);
  out.dtype("dtype", p.q.dtype, DType::F32);
  if (p.layout != Layout::Bhsd) out.text("layout", layouts[static_cast<std::size_t>(p.layout)]);
  const bool in_double = literals_of(p.q.dtype) == ir::Literals::F64;
  out.words(ir::print(p.program, literals_of(p.q.dtype)));
  if (p.scale) {
    out.text("scale",
             in_double ? number_text(*p.scale) : number_text(static_cast<float>(*p.scale)));
  }
  out.flag("sink", p.sink);
  out.number("dropout", p.dropout, 0.0f);
  if (p.rng == Rng::Engine) out.text("rng", "engine");
  print_outputs(out, p);
  print_offsets(out, p);
  print_dtypes(out, p);
  print_strides(out, p);
  if (const std::string text = tensor_strides_text(p); !text.empty()) {
    out.text("tensor_strides", text);
  }
  if (p.device_values) out.text("values", "device");
#define FOVEA_OPTION(name) out.flag(#name, p.name);
#include "fovea/fields.def"
  if (p.precision == Precision::Strict) out.text("precision", "strict");
  return out.line();
}

}  // namespace fovea
