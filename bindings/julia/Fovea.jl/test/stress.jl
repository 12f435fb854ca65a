# Run by threads.jl with four threads: every result is compared with the one that a single task got before.
using Fovea, Random

const rng = MersenneTwister(parse(Int, ARGS[1]))
const DONE = Threads.Atomic{Bool}(false)

struct Job
    q::Array{Float32,4}
    slopes::Vector{Float32}
    window::Int
    o::Array{Float32,4}
    dq::Array{Float32,4}
    dslopes::Vector{Float32}
end

modifier(slopes) = (s, b, h, q, k) -> s + slopes[h] * (k - q)

function compute(q, slopes, window)
    o, lse = attention(q, q, q; score_mod = modifier(slopes), window = window, return_lse = true)
    g = attention_backward(o, o, lse, q, q, q; score_mod = modifier(slopes), window = window)
    return o, g.q, g.slopes
end

function new_job(i)
    q, slopes = randn(rng, Float32, 8, 2, 4 + i, 1), randn(rng, Float32, 2)
    return Job(q, slopes, 2 + i % 5, compute(q, slopes, 2 + i % 5)...)
end

const ROUNDS = Threads.Atomic{Int}(0)

# Until there have been fifteen collections, and each job at least twice.
function work(jobs, first)
    round = 0
    while round < 2 || ROUNDS[] < 15
        for i in first:3:length(jobs)
            job = jobs[i]
            compute(job.q, job.slopes, job.window) == (job.o, job.dq, job.dslopes) || return -1
            yield()
        end
        round += 1
    end
    return round
end

# Collects garbage and drops every plan, while others build and run them.
function disturb()
    while !DONE[]
        GC.gc()
        ROUNDS[] % 3 == 0 && Fovea.clear_cache()
        Threads.atomic_add!(ROUNDS, 1)
        sleep(0.01)  # so that others get on between two collections
    end
end

# A collection must not wait for a call: it ends while the call still runs. Several attempts, each with a call four times as
# long, since on a busy machine the call might end first.
function collects_meanwhile()
    for attempt in 1:5
        q = randn(rng, Float32, 64, 8, 96 * 2^attempt, 1)
        ended = Threads.Atomic{Bool}(false)
        started = Threads.Atomic{Bool}(false)
        task = Threads.@spawn begin
            started[] = true
            attention(q, q, q; engine = "reference", score_mod = "tanh(sin(score)) + cos(score)")
            ended[] = true
        end
        while !started[]
            GC.safepoint()
        end
        for _ in 1:200_000
            GC.safepoint()  # until it is inside the library
        end
        GC.gc(false)
        early = !ended[]
        wait(task)
        early && return true
    end
    return false
end

println(Threads.nthreads(), " threads")
const JOBS = [new_job(i) for i in 1:12]
tasks = [Threads.@spawn(work(JOBS, first)) for first in 1:3]
disturber = Threads.@spawn disturb()
rounds = fetch.(tasks)
DONE[] = true
wait(disturber)
println("rounds of work ", rounds, " during ", ROUNDS[], " garbage collections")
all(>=(2), rounds) || error("a result differs from that of one task")
held = mapreduce(x -> x.users, +, values(Fovea.PLANS); init = 0)
held == 0 || error("$held plans are still held")
VERSION >= v"1.12" || Fovea.SAFE_ENTER[] != C_NULL ? (collects_meanwhile() || error("a collection waited for a call")) :
    println("this version of Julia has no calls that a collection does not wait for")
println("all right")
