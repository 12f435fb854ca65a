# Julia 1.5 to 1.7 only: there `ifelse` is built in and takes no new methods. A modifier that uses it is run statement by
# statement from its lowered code, with `Fovea.select` in its place. Functions that the modifier calls are not examined: they
# must call Fovea.select themselves.

struct Frame
    code::Core.CodeInfo
    slots::Vector{Any}
    values::Vector{Any}
    source::Source
end

function call_modifier(@nospecialize(f), args::Tuple)
    source = facts_of(f, args).source
    return source === nothing ? f(args...) : interpret(f, args, source)
end

function interpret(@nospecialize(f), args::Tuple, source::Source)
    code, method = source.code, source.method
    slots = Vector{Any}(undef, length(code.slotnames))
    slots[1] = f
    fixed = method.isva ? method.nargs - 2 : length(args)
    for i in 1:fixed
        slots[i + 1] = args[i]
    end
    method.isva && (slots[method.nargs] = args[(fixed + 1):end])
    return run_frame(Frame(code, slots, Vector{Any}(undef, length(code.code)), source))
end

function run_frame(frame::Frame)
    at = 1
    while true
        statement = frame.code.code[at]
        if statement isa Core.GotoNode
            at = statement.label
        elseif statement isa Expr && statement.head === :return
            return value_of(frame, statement.args[1])
        elseif isdefined(Core, :ReturnNode) && statement isa Core.ReturnNode
            return value_of(frame, statement.val)
        elseif statement isa Expr && statement.head === :gotoifnot
            at = branch(value_of(frame, statement.args[1])) ? at + 1 : statement.args[2]
        elseif isdefined(Core, :GotoIfNot) && statement isa Core.GotoIfNot
            at = branch(value_of(frame, statement.cond)) ? at + 1 : statement.dest
        elseif statement isa Expr && statement.head === :(=)
            frame.values[at] = assign!(frame, statement.args[1], value_of(frame, statement.args[2]))
            at += 1
        else
            frame.values[at] = value_of(frame, statement)
            at += 1
        end
    end
end

branch(c::Bool) = c
branch(@nospecialize(c)) = throw(TypeError(:if, "", Bool, c))

assign!(frame, slot::Core.SlotNumber, value) = (frame.slots[slot.id] = value)
assign!(frame, ref::GlobalRef, value) = Core.eval(ref.mod, :($(ref.name) = $value))

value_of(frame, x::Core.SSAValue) = frame.values[x.id]
value_of(frame, x::Core.SlotNumber) = frame.slots[x.id]
value_of(frame, x::GlobalRef) = is_ifelse(x) ? select_or_ifelse : getfield(x.mod, x.name)
value_of(frame, x::QuoteNode) = x.value
value_of(frame, x) = x
function value_of(frame, x::Expr)
    x.head === :call && return call_in(frame, x.args)
    x.head === :static_parameter && return frame.source.parameters[x.args[1]]
    x.head === :new && return new_in(frame, x.args)
    x.head === :isdefined && return true
    x.head in (:meta, :inbounds, :loopinfo, :boundscheck, :line, :code_coverage_effect, :inline, :noinline) && return nothing
    refuse("on Julia $VERSION a modifier that uses ifelse can't contain `$(x.head)`; write Fovea.select instead of ifelse")
end

function call_in(frame, parts)
    values = Any[value_of(frame, part) for part in parts]
    # A closure inside the modifier may use ifelse as well.
    f, args = values[1], Tuple(values[2:end])
    f isa Function && !(f isa Core.Builtin) && parentmodule(f) === frame.source.method.module && any(a -> a isa Sym, args) &&
        return call_modifier(f, args)
    return f(args...)
end

new_in(frame, parts) = ccall(:jl_new_structv, Any, (Any, Ptr{Any}, UInt32), value_of(frame, parts[1]),
                             Any[value_of(frame, part) for part in parts[2:end]], length(parts) - 1)

select_or_ifelse(c::Sym, x, y) = select(c, x, y)
select_or_ifelse(c, x, y) = Core.ifelse(c, x, y)
