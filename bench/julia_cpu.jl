# Fovea.jl against dense attention with BLAS, and the price of a small call. Run by `./dev bench julia`, which records
# docs/results/julia_<machine>.md:  julia bench/julia_cpu.jl [FILE]
#
# The dense one is what NNlib does: permuted copies, a batched product with threads, a softmax over the whole array, another
# product; its backward has the attention weights from the forward. Beside it a better one, which NNlib does not have: a
# head per thread of Julia's from beginning to end, with a single-threaded BLAS, so that softmax is threaded as well.
#
# Meant for an idle machine.
using Fovea
using LinearAlgebra
using Printf

const D, H, S, B = 64, 8, 1024, 1

heads_first(x) = permutedims(x, (1, 3, 2, 4))  # (head_dim, seq, heads, batch)

function each_product(f, n, threaded)
    threaded ? (Threads.@threads for i in 1:n f(i) end) : foreach(f, 1:n)
end

function softmax_keys!(x)
    x .-= maximum(x; dims = 1)
    @fastmath x .= exp.(x)
    x ./= sum(x; dims = 1)
    return x
end

flat(x) = reshape(x, size(x, 1), size(x, 2), :)

function dense_forward(q, k, v, threaded)
    qt, kt, vt = flat(heads_first(q)), flat(heads_first(k)), flat(heads_first(v))
    qt .*= 1 / sqrt(Float32(D))
    p, o = Array{Float32}(undef, S, S, H * B), similar(qt)
    each_product(H * B, threaded) do i
        weights = view(p, :, :, i)
        BLAS.gemm!('T', 'N', 1.0f0, view(kt, :, :, i), view(qt, :, :, i), 0.0f0, weights)
        threaded && softmax_keys!(weights)
    end
    threaded || softmax_keys!(p)
    each_product(i -> BLAS.gemm!('N', 'N', 1.0f0, view(vt, :, :, i), view(p, :, :, i), 0.0f0, view(o, :, :, i)), H * B, threaded)
    return permutedims(reshape(o, D, S, H, B), (1, 3, 2, 4)), p
end

through_softmax!(dp, p) = (dp .= p .* (dp .- sum(dp .* p; dims = 1)))

function dense_backward(dO, p, q, k, v, threaded)
    gt, qt, kt, vt = map(flat ∘ heads_first, (dO, q, k, v))
    ds, dq, dk, dv = similar(p), similar(qt), similar(kt), similar(vt)
    scale = 1 / sqrt(Float32(D))
    each_product(H * B, threaded) do i
        BLAS.gemm!('N', 'T', 1.0f0, view(gt, :, :, i), view(p, :, :, i), 0.0f0, view(dv, :, :, i))
        BLAS.gemm!('T', 'N', 1.0f0, view(vt, :, :, i), view(gt, :, :, i), 0.0f0, view(ds, :, :, i))
        threaded && through_softmax!(view(ds, :, :, i), view(p, :, :, i))
    end
    threaded || through_softmax!(ds, p)
    each_product(H * B, threaded) do i
        BLAS.gemm!('N', 'N', scale, view(kt, :, :, i), view(ds, :, :, i), 0.0f0, view(dq, :, :, i))
        BLAS.gemm!('N', 'T', scale, view(qt, :, :, i), view(ds, :, :, i), 0.0f0, view(dk, :, :, i))
    end
    return map(x -> permutedims(reshape(x, D, S, H, B), (1, 3, 2, 4)), (dq, dk, dv))
end

# Milliseconds: the best and the median of several, and the least processor time (of all threads together), in turns with
# the others so that all see the same machine.
function times(calls; rounds = 15)
    foreach(call -> call(), calls)
    seconds, busy = [Float64[] for _ in calls], [Float64[] for _ in calls]
    for round in 1:rounds, (i, call) in enumerate(calls)
        GC.gc(false)
        before = processor_seconds()
        push!(seconds[i], @elapsed call())
        push!(busy[i], processor_seconds() - before)
    end
    return [(best = 1e3 * minimum(x), median = 1e3 * sort(x)[(end + 1) ÷ 2], busy = 1e3 * minimum(y)) for (x, y) in zip(seconds, busy)]
end
processor_seconds() = ccall(:clock, Clong, ()) / 1e6

function with_blas(f, threads)
    return () -> (BLAS.set_num_threads(threads); f())
end

function large()
    q, k, v, dO = (randn(Float32, D, H, S, B) for _ in 1:4)
    n = Threads.nthreads()
    (o, lse), (want, p) = attention(q, k, v; return_lse = true), dense_forward(q, k, v, false)
    BLAS.set_num_threads(1)  # several threads of Julia call it below
    error = norm(o - want) / norm(want)
    g, dense = attention_backward(dO, o, lse, q, k, v), dense_backward(dO, p, q, k, v, true)
    grad_error = maximum(norm(a - b) / norm(b) for (a, b) in zip((g.q, g.k, g.v), dense))
    max(error, grad_error) < 1e-4 || throw("results differ: $error, $grad_error")
    slopes = Float32[2.0^-h for h in 1:H]
    alibi = (s, b, h, q, k) -> 20 * tanh(s / 20) + slopes[h] * (k - q)
    rows = times([
        with_blas(() -> attention(q, k, v; return_lse = true), n), with_blas(() -> dense_forward(q, k, v, false), n),
        with_blas(() -> dense_forward(q, k, v, true), 1), with_blas(() -> attention_backward(dO, o, lse, q, k, v), n),
        with_blas(() -> dense_backward(dO, p, q, k, v, false), n), with_blas(() -> dense_backward(dO, p, q, k, v, true), 1),
        with_blas(() -> attention(q, k, v; causal = true), n), with_blas(() -> attention(q, k, v; score_mod = alibi), n)])
    return rows
end

# Microseconds of one call: the best and the median of many loops.
const LOOPS, CALLS_PER_LOOP = 60, 300
function loop_time(call)
    repeated() = for _ in 1:CALLS_PER_LOOP
        call()
    end
    repeated()
    seconds = sort!([@elapsed(repeated()) for _ in 1:LOOPS])
    return (best = 1e6 / CALLS_PER_LOOP * seconds[1], median = 1e6 / CALLS_PER_LOOP * seconds[(end + 1) ÷ 2])
end

# libfovea's own part of a call: the plan, run with bindings that are ready.
function plan_alone(q, k, v, o, lse)
    key = first(x for x in keys(Fovea.PLANS) if x.config.sizes.sq == 2)  # the only small one so far
    options, slots = Fovea.read_options(NamedTuple()), Fovea.Slots(o)
    prepared, rows = Fovea.acquire(key, Fovea.PLAIN), Fovea.Extras(lse, nothing, nothing, nothing, nothing, nothing)
    time = Fovea.with_workspace(q, prepared.workspace) do workspace
        bindings = Ref(Fovea.bindings_of(options, (q, k, v), slots, rows, Fovea.CTensorBinding[], Fovea.CScalarBinding[],
                                         workspace, prepared.workspace, C_NULL))
        run, plan = Fovea.library().functions.plan_run, prepared.plan
        return loop_time(() -> Fovea.safe_call(run, plan, Fovea.address_of(bindings)))
    end
    Fovea.release(prepared)
    return time
end

function small()
    q, k, v = (randn(Float32, 8, 1, 2, 1) for _ in 1:3)
    o, slopes = similar(q), Float32[0.5]
    mod = (s, b, h, q, k) -> 20 * tanh(s / 20) + slopes[h] * (k - q)
    mask = (b, h, q, k) -> (q >= k) & (q - k < 4)
    _, lse = attention(q, k, v; return_lse = true)
    alone = plan_alone(q, k, v, o, lse)
    _, closure_lse = attention(q, k, v; score_mod = mod, return_lse = true)
    return ["libfovea alone, `fovea_plan_run`" => alone,
            "`attention!(o, q, k, v)`" => loop_time(() -> attention!(o, q, k, v)),
            "`attention(q, k, v)`" => loop_time(() -> attention(q, k, v)),
            "with `causal = true`" => loop_time(() -> attention!(o, q, k, v; causal = true)),
            "with a text and a number" => loop_time(() -> attention!(o, q, k, v; score_mod = "c * score", c = 2.0f0)),
            "with a closure: a soft cap and slopes" => loop_time(() -> attention!(o, q, k, v; score_mod = mod)),
            "with two closures: that and a mask" => loop_time(() -> attention!(o, q, k, v; score_mod = mod, mask_mod = mask)),
            "`attention_backward`" => loop_time(() -> attention_backward(o, o, lse, q, k, v)),
            "`attention_backward` with the closure" => loop_time(() -> attention_backward(o, o, closure_lse, q, k, v; score_mod = mod))]
end

function report(io, rows, calls)
    fovea_f, blas_f, heads_f, fovea_b, blas_b, heads_b, causal, alibi = rows
    model = match(r"model name\s*:\s*(.*)", read("/proc/cpuinfo", String)).captures[1]
    config = try unsafe_string(ccall((:openblas_get_config64_, Base.libblas_name), Cstring, ())) catch; "unknown BLAS" end
    stamp = Libc.strftime("%Y-%m-%d", time())
    println(io, "# Fovea.jl on the CPU\n")
    println(io, "- machine: $model, $(Sys.CPU_THREADS) processors; load when it began: ", @sprintf("%.1f", LOAD))
    println(io, "- Julia $VERSION with $(Threads.nthreads()) threads; $config")
    println(io, "- date: $stamp; command: `./dev bench julia FILE`\n")
    println(io, "Float32, head_dim $D, $H heads, $S queries and keys, batch $B. Milliseconds, best (and median) of 15 rounds in turns. ")
    println(io, "Dense is attention with BLAS as NNlib does it, written in [bench/julia_cpu.jl](../../bench/julia_cpu.jl) (NNlib itself ",
            "was not at hand): permuted copies, products with a threaded BLAS, a softmax over the whole array without threads; ",
            "its backward has the attention weights from its forward, while Fovea's computes them again. The other dense one, ",
            "which NNlib does not have, takes a head per thread from beginning to end. Ratios are of the best times. Processor ",
            "time is of all threads together, the least of the rounds.\n")
    println(io, "| | Fovea | dense | ratio | dense, a head per thread | ratio |\n|---|---:|---:|---:|---:|---:|")
    cell(x) = @sprintf("%.1f (%.1f)", x.best, x.median)
    line(name, f, a, b) = @printf(io, "| %s | %s | %s | %.1f | %s | %.1f |\n", name, cell(f), cell(a), a.best / f.best, cell(b), b.best / f.best)
    work(name, f, a, b) = @printf(io, "| %s, processor time | %.1f | %.1f | %.1f | %.1f | %.1f |\n", name, f.busy, a.busy, a.busy / f.busy, b.busy, b.busy / f.busy)
    line("forward", fovea_f, blas_f, heads_f)
    line("backward", fovea_b, blas_b, heads_b)
    work("forward", fovea_f, blas_f, heads_f)
    work("backward", fovea_b, blas_b, heads_b)
    println(io, "| forward, causal | $(cell(causal)) | | | | |\n| forward, soft cap and ALiBi by a closure | $(cell(alibi)) | | | | |\n")
    println(io, "One small call, q of size (8, 1, 2, 1), in microseconds: the best and the median of $LOOPS loops of ",
            "$CALLS_PER_LOOP calls. Modifiers are traced in every call; what is timed includes the run of their formula.\n\n",
            "| call | best | median |\n|---|---:|---:|")
    foreach(((name, us),) -> @printf(io, "| %s | %.1f | %.1f |\n", name, us.best, us.median), calls)
end

const LOAD = parse(Float64, split(read("/proc/loadavg", String))[1])
const ROWS, CALLS = large(), small()
report(stdout, ROWS, CALLS)
isempty(ARGS) || open(io -> report(io, ROWS, CALLS), ARGS[1], "w")
