# A graph of symbolic values as text of the language: what is used twice gets a `let`, so that n operations are n short
# pieces however much they share.

const DEEPEST_INLINE = 40  # deeper than this a text is cut by a `let`, well below what the parser nests

mutable struct Piece
    uses::Int
    depth::Int
    level::Int
    text::String
end

# Nodes are numbered operands first, so one pass backwards counts uses and one forwards prints.
function formula_text(root::Sym)
    root.trace === nothing && return literal_text(root)
    nodes = root.trace.nodes
    pieces = Dict{Int32,Piece}()
    for id in root.id:Int32(-1):Int32(1)
        id == root.id || haskey(pieces, id) || continue
        id == root.id && (pieces[id] = Piece(1, 0, ATOM_LEVEL, ""))
        for arg in nodes[id].args
            piece = get!(() -> Piece(0, 0, ATOM_LEVEL, ""), pieces, arg)
            piece.uses += 1
        end
    end
    io = IOBuffer()
    lets = 0
    for id in sort!(collect(keys(pieces)))
        node, piece = nodes[id], pieces[id]
        piece.depth = isempty(node.args) ? 0 : 1 + maximum(pieces[arg].depth for arg in node.args)
        piece.level = node.level
        piece.text = piece_text(node, pieces)
        id != root.id && (piece.uses > 1 && !isempty(node.args) || piece.depth > DEEPEST_INLINE) || continue
        print(io, "let t", lets, " = ", piece.text, "; ")
        piece.text, piece.depth, piece.level = "t$lets", 0, ATOM_LEVEL
        lets += 1
    end
    print(io, pieces[root.id].text)
    return String(take!(io))
end

function piece_text(node::Node, pieces)
    node.form === Leaf && return node.text
    node.form === Prefix && return string(node.text, operand(node, 1, PREFIX_LEVEL, pieces))
    node.form === Infix &&
        return string(operand(node, 1, node.level, pieces), " ", node.text, " ", operand(node, 2, node.level + 1, pieces))
    inside = join((operand(node, i, 0, pieces) for i in eachindex(node.args)), ", ")
    return node.form === Load ? string(node.text, "[", inside, "]") : string(node.text, "(", inside, ")")
end

function operand(node::Node, i, weakest, pieces)
    piece = pieces[node.args[i]]
    return piece.level < weakest ? string("(", piece.text, ")") : piece.text
end
