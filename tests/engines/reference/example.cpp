#include "tests/engines/reference/example.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "attention/extents.h"
#include "base/dtype.h"
#include "ir/parse.h"

namespace fovea::test {
namespace {

BoundTensor bound(const Array& array) {
  return {array.data(), {array.strides[0], array.strides[1], array.strides[2], array.strides[3]}};
}

template <class T>
const T* data_or_null(const std::vector<T>& list) {
  return list.empty() ? nullptr : list.data();
}

}  // namespace

Problem make_problem(const Sizes& sizes, const std::string& program) {
  Problem problem;
  problem.sizes = sizes;
  problem.program = ir::parse_program(program);
  for (const NamedTensor& tensor : named_tensors()) (problem.*tensor.spec).dtype = DType::F64;
  problem.lse = true;
  return problem;
}

Sizes small_sizes(std::int64_t sq, std::int64_t skv, std::int64_t h, std::int64_t hkv) {
  Sizes sizes;
  sizes.h = h, sizes.hkv = hkv, sizes.sq = sq, sizes.skv = skv, sizes.d = 3, sizes.dv = 2;
  return sizes;
}

Example filled(Problem problem, std::uint64_t seed) {
  for (const ir::TensorDecl& tensor : problem.program.tensors()) {
    problem.want_tensors.push_back(ir::loaded_type(tensor.dtype) == ir::Type::F32);
  }
  problem.want_scalars.clear();
  for (const ir::ScalarDecl& scalar : problem.program.scalars()) {
    problem.want_scalars.push_back(scalar.type == ir::Type::F32);
  }
  problem.want_sink = problem.sink;
  Example example(problem);
  example.fill(seed);
  return example;
}

Example::Example(Problem attention) : problem(std::move(attention)) {
  const Sizes& sizes = problem.sizes;
  const bool packed = problem.layout == Layout::Thd;
  const std::array<Array*, 8> eight{&q, &k, &v, &o, &grad_o, &grad_q, &grad_k, &grad_v};
  for (std::size_t i = 0; i < eight.size(); ++i) {
    const NamedTensor& named = named_tensors()[i];
    const Strides strides = strides_of(problem, named);
    const std::int64_t rows = !packed         ? length_of(sizes, named)
                              : named.of_keys ? sizes.t_k
                                              : sizes.t_q;
    *eight[i] =
        Array((problem.*named.spec).dtype,
              {packed ? 1 : sizes.b, heads_of(sizes, named), rows, features_of(sizes, named)},
              {strides.b, strides.h, strides.s, strides.d});
    eight[i]->fill(0);
  }
  const DType row_type = problem.q.dtype == DType::F64 ? DType::F64 : DType::F32;
  Array heads = Array::dense(row_type, {sizes.h});
  Array rows = packed ? Array::dense(row_type, {sizes.h, sizes.t_q})
                      : Array::dense(row_type, {sizes.b, sizes.h, sizes.sq});
  heads.fill(0), rows.fill(0);
#define FOVEA_OUTPUT(name, extent, saved) name = extent;
#include "fovea/fields.def"
  grad_lse = rows;
  sink = grad_sink = heads;
  for (const ir::TensorDecl& decl : problem.program.tensors()) {
    const std::vector<std::int64_t> extents = captured_extents(decl, sizes, problem.h_global);
    const bool in_double = row_type == DType::F64 && decl.dtype == DType::F32;
    const DType type = in_double ? DType::F64 : decl.dtype;
    tensors.push_back({Array::dense(type, extents), Array::dense(row_type, extents)});
    tensors.back().value.fill(0);
  }
  for (const ir::ScalarDecl& decl : problem.program.scalars()) {
    const double value = decl.value.value_or(0);
    scalars.push_back({static_cast<float>(value), static_cast<std::int32_t>(value)});
    scalar_gradients.push_back(Array::dense(row_type, {}));
  }
  if (problem.scale) scale = *problem.scale;
}

void Example::fill(std::uint64_t random_seed) {
  std::mt19937_64 random(random_seed);
  for (Array* array : {&q, &k, &v, &grad_o, &grad_lse, &sink}) array->fill_normal(random);
  for (CapturedArrays& tensor : tensors) tensor.value.fill_normal(random);
}

Bindings Example::bindings() {
  Bindings out;
  out.sizes = problem.sizes;
  out.q = bound(q), out.k = bound(k), out.v = bound(v), out.o = bound(o);
  out.grad_o = bound(grad_o);
  out.grad_q = bound(grad_q), out.grad_k = bound(grad_k), out.grad_v = bound(grad_v);
#define FOVEA_OUTPUT(name, extent, saved) out.name = name.data();
#include "fovea/fields.def"
  out.grad_lse = grad_lse.data();
  out.sink = sink.data(), out.grad_sink = grad_sink.data();
  out.q_lengths = data_or_null(q_lengths), out.k_lengths = data_or_null(k_lengths);
  out.q_starts = data_or_null(q_starts), out.k_starts = data_or_null(k_starts);
  out.q_offsets = data_or_null(q_offsets), out.k_offsets = data_or_null(k_offsets);
  views_.clear(), gradients_.clear(), bound_scalars_.clear(), scalar_gradient_pointers_.clear();
  for (const CapturedArrays& tensor : tensors) {
    ir::TensorView view{tensor.value.data(), tensor.value.dtype,
                        static_cast<int>(tensor.value.extents.size())};
    BoundGradient gradient{tensor.gradient.data(), tensor.gradient.dtype, {}};
    for (std::size_t i = 0; i < tensor.value.extents.size(); ++i) {
      view.extent[i] = tensor.value.extents[i];
      view.stride[i] = tensor.value.strides[i];
      gradient.stride[i] = tensor.gradient.strides[i];
    }
    views_.push_back(view);
    gradients_.push_back(gradient);
  }
  for (const ir::ScalarValue& value : scalars) bound_scalars_.push_back({value, nullptr});
  for (const Array& gradient : scalar_gradients) {
    scalar_gradient_pointers_.push_back(gradient.data());
  }
  out.tensors = views_, out.tensor_gradients = gradients_;
  out.scalars = bound_scalars_, out.scalar_gradients = scalar_gradient_pointers_;
  out.scale.value = scale, out.dropout.value = problem.dropout;
  out.seed.value = seed, out.offset.value = offset;
  out.b_offset.value = problem.b_offset, out.h_offset.value = problem.h_offset;
  out.q_offset.value = problem.q_offset, out.k_offset.value = problem.k_offset;
  out.h_global = problem.h_global;
  return out;
}

std::unique_ptr<Plan> Example::plan(Direction direction, std::vector<float>& literals) const {
  Problem directed = problem;
  directed.direction = direction;
  const Device cpu;
  const Baking baking = reference_engine().bake(directed, cpu);
  const Judged judged = reference_engine().judge(baking.baked, cpu);
  EXPECT_EQ(judged.answer, Answer::Proven);
  literals = baking.literals;
  return reference_engine().compile(baking.baked, judged, cpu);
}

std::vector<Array*> Example::outputs(Direction direction) {
  std::vector<Array*> out;
  if (direction == Direction::Forward) {
    out = {&o};
#define FOVEA_OUTPUT(name, extent, saved) \
  if (problem.name) out.push_back(&name);
#include "fovea/fields.def"
    return out;
  }
  if (problem.want_q) out.push_back(&grad_q);
  if (problem.want_k) out.push_back(&grad_k);
  if (problem.want_v) out.push_back(&grad_v);
  if (problem.want_sink) out.push_back(&grad_sink);
  for (std::size_t slot = 0; slot < problem.want_tensors.size(); ++slot) {
    if (problem.want_tensors[slot]) out.push_back(&tensors[slot].gradient);
  }
  for (std::size_t slot = 0; slot < problem.want_scalars.size(); ++slot) {
    if (problem.want_scalars[slot]) out.push_back(&scalar_gradients[slot]);
  }
  return out;
}

std::vector<const Array*> Example::all_arrays() const {
  std::vector<const Array*> out{&q,      &k,      &v,        &o,    &grad_o,   &grad_q,
                                &grad_k, &grad_v, &grad_lse, &sink, &grad_sink};
#define FOVEA_OUTPUT(name, extent, saved) out.push_back(&name);
#include "fovea/fields.def"
  for (const CapturedArrays& tensor : tensors)
    out.insert(out.end(), {&tensor.value, &tensor.gradient});
  for (const Array& gradient : scalar_gradients) out.push_back(&gradient);
  return out;
}

void Example::run(Direction direction) {
  std::vector<float> literals;
  const std::unique_ptr<Plan> planned = plan(direction, literals);
  GuardedBytes workspace(planned->workspace_bytes(problem.sizes));
  for (Array* output : outputs(direction)) output->memory.poison();
  Bindings call = bindings();
  call.literals = literals;
  call.workspace = workspace.data();
  call.workspace_bytes = workspace.size();
  planned->run(call);
  EXPECT_TRUE(workspace.zones_intact()) << "written outside the workspace";
  for (const Array* array : all_arrays()) {
    EXPECT_TRUE(array->memory.zones_intact()) << "written outside a tensor";
  }
}

void Example::forward() { run(Direction::Forward); }
void Example::backward() { run(Direction::Backward); }
void Example::forward_and_backward() {
  forward();
  backward();
}

CapturedArrays& Example::tensor(const std::string& name) {
  for (std::size_t slot = 0; slot < tensors.size(); ++slot) {
    if (problem.program.tensors()[slot].name == name) return tensors[slot];
  }
  throw std::out_of_range("no tensor " + name);
}

ir::ScalarValue& Example::scalar(const std::string& name) {
  for (std::size_t slot = 0; slot < scalars.size(); ++slot) {
    if (problem.program.scalars()[slot].name == name) return scalars[slot];
  }
  throw std::out_of_range("no scalar " + name);
}

double Example::scalar_gradient(const std::string& name) const {
  for (std::size_t slot = 0; slot < scalars.size(); ++slot) {
    if (problem.program.scalars()[slot].name == name) return scalar_gradients[slot].number(0);
  }
  throw std::out_of_range("no scalar " + name);
}

namespace {

constexpr std::size_t zone = 128;
constexpr std::byte zone_byte{0xa5};
constexpr std::byte poison_byte{0xff};  // NaN in f16, bf16, f32 and f64

bool is_float(DType type) { return ir::loaded_type(type) == ir::Type::F32; }

}  // namespace

GuardedBytes::GuardedBytes(std::size_t size) : bytes_(size + 2 * zone + 64), size_(size) {
  const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data()) + zone;
  start_ = zone + (64 - address % 64) % 64;
  std::ranges::fill(bytes_, zone_byte);
  poison();
}

void GuardedBytes::poison() {
  std::fill_n(bytes_.begin() + static_cast<std::ptrdiff_t>(start_), size_, poison_byte);
}

bool GuardedBytes::zones_intact() const {
  const auto is_zone = [](std::byte byte) { return byte == zone_byte; };
  const auto first = bytes_.begin() + static_cast<std::ptrdiff_t>(start_);
  return std::all_of(bytes_.begin(), first, is_zone) &&
         std::all_of(first + static_cast<std::ptrdiff_t>(size_), bytes_.end(), is_zone);
}

Array::Array(DType type, std::vector<std::int64_t> shape, std::vector<std::int64_t> element_strides)
    : dtype(type), extents(std::move(shape)), strides(std::move(element_strides)) {
  std::int64_t elements = 1;
  for (std::size_t i = 0; i < extents.size(); ++i) elements += (extents[i] - 1) * strides[i];
  if (std::ranges::find(extents, 0) != extents.end()) elements = 0;
  memory = GuardedBytes(static_cast<std::size_t>(elements * dtype_size(dtype)));
}

Array Array::dense(DType type, std::vector<std::int64_t> shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return {type, std::move(shape), std::move(strides)};
}

double Array::get(std::span<const std::int64_t> index) const {
  std::int64_t at = 0;
  for (std::size_t i = 0; i < index.size(); ++i) at += index[i] * strides[i];
  if (is_float(dtype)) return read_number(memory.data(), dtype, at);
  const std::size_t size = static_cast<std::size_t>(dtype_size(dtype));
  std::int64_t out = 0;  // small and not negative in these tests
  std::memcpy(&out, memory.data() + static_cast<std::size_t>(at) * size, size);
  return static_cast<double>(out);
}

void Array::set(std::span<const std::int64_t> index, double value) {
  std::int64_t at = 0;
  for (std::size_t i = 0; i < index.size(); ++i) at += index[i] * strides[i];
  if (is_float(dtype)) return write_number(memory.data(), dtype, at, value);
  const std::size_t size = static_cast<std::size_t>(dtype_size(dtype));
  const auto whole = static_cast<std::int64_t>(value);
  std::memcpy(memory.data() + static_cast<std::size_t>(at) * size, &whole, size);
}

std::size_t Array::count() const {
  std::size_t count = 1;
  for (const std::int64_t extent : extents) count *= static_cast<std::size_t>(extent);
  return count;
}

std::vector<std::int64_t> Array::index_of(std::size_t i) const {
  std::vector<std::int64_t> index(extents.size());
  for (std::size_t d = extents.size(); d-- > 0;) {
    const auto extent = static_cast<std::size_t>(extents[d]);
    index[d] = static_cast<std::int64_t>(i % extent);
    i /= extent;
  }
  return index;
}

std::vector<double> Array::numbers() const {
  std::vector<double> out(count());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = number(i);
  return out;
}

void Array::assign(const std::vector<double>& numbers) {
  for (std::size_t i = 0; i < count(); ++i) put(i, numbers.at(i));
}

void Array::fill_normal(std::mt19937_64& random, double deviation) {
  std::normal_distribution<double> normal(0, deviation);
  for (std::size_t i = 0; i < count(); ++i) {
    put(i, is_float(dtype) ? normal(random) : static_cast<double>(random() % 3));
  }
}

}  // namespace fovea::test
