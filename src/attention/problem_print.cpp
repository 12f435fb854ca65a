// A Problem to its canonical line. The order of problem_keys() is the order of printing.
#include "attention/gradients.h"
#include "attention/problem_text.h"
#include "attention/refuse.h"
#include "attention/tensor_strides.h"
#include "base/words.h"
#include "ir/print.h"

namespace fovea {
namespace {

std::string_view layout_name(Layout layout) {
  switch (layout) {
    case Layout::Bhsd: return "bhsd";
    case Layout::Bshd: return "bshd";
    case Layout::Sbhd: return "sbhd";
    case Layout::Thd: return "thd";
  }
  return "?";
}

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
    out.text(std::string(tensor.name) + "_strides", number_text(s->b) + "," + number_text(s->h) +
                                                        "," + number_text(s->s) + "," +
                                                        number_text(s->d));
  }
}

void print_outputs(LinePrinter& out, const Problem& p) {
  if (p.direction == Direction::Backward) {
    if (const std::string grads = wanted_gradients(p); grads != "q,k,v") out.text("grads", grads);
  }
  out.flag("lse", p.lse);
  out.flag("row_max", p.row_max);
  out.flag("max_logit", p.max_logit);
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
      "grads", "lse", "row_max", "max_logit", "dlse",
      // positions
      "b_offset", "h_offset", "q_offset", "k_offset", "h_global",
      // types and memory
      "o_dtype", "do_dtype", "grad_dtype", "dq_dtype", "dk_dtype", "dv_dtype", "q_strides",
      "k_strides", "v_strides", "o_strides", "do_strides", "dq_strides", "dk_strides", "dv_strides",
      "tensor_strides", "values",
      // how it is run
      "deterministic", "capture", "precision", "seed", "offset"};
  return keys;
}

std::string print(const Problem& p) {
  LinePrinter out;
  if (p.direction == Direction::Backward) out.text("direction", "backward");
  print_sizes(out, p);
  out.dtype("dtype", p.q.dtype, DType::F32);
  if (p.layout != Layout::Bhsd) out.text("layout", layout_name(p.layout));
  out.words(ir::print(p.program));
  if (p.scale) out.text("scale", number_text(*p.scale));
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
  out.flag("deterministic", p.deterministic);
  out.flag("capture", p.capture);
  if (p.precision == Precision::Strict) out.text("precision", "strict");
  return out.line();
}

}  // namespace fovea
