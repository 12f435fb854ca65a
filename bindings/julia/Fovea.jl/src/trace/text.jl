# A graph of symbolic values as text of the language: what is used twice gets a `let`, so that n operations are n short
# pieces however much they share.

const DEEPEST_INLINE = 40  # deeper than this a text is cut by a `let`, well below what the parser nests

struct Piece
    depth::Int
    level::Int
    text::String
end
const NO_PIECE = Piece(0, ATOM_LEVEL, "")

# Nodes are numbered operands first, so one pass backwards counts uses and one forwards prints.
function formula_text(root::Sym)
    root.trace === nothing && return literal_text(root)
    nodes = root.trace.nodes
    uses = use_counts(nodes, root.id)
    pieces = fill(NO_PIECE, root.id)
    io = IOBuffer()
    lets = 0
    for id in 1:(root.id - 1)
        uses[id] == 0 && continue
        piece = piece_of(nodes[id], pieces)
        if uses[id] > 1 && !isempty(nodes[id].args) || piece.depth > DEEPEST_INLINE
            print(io, "let t", lets, " = ", piece.text, "; ")
            piece = Piece(0, ATOM_LEVEL, string("t", lets))
            lets += 1
        end
        pieces[id] = piece
    end
    print(io, piece_of(nodes[root.id], pieces).text)
    return String(take!(io))
end

function use_counts(nodes, root)
    uses = zeros(Int, root)
    uses[root] = 1
    for id in root:-1:1
        uses[id] == 0 && continue
        for arg in nodes[id].args
            uses[arg] += 1
        end
    end
    return uses
end

function piece_of(node::Node, pieces)
    depth = 0
    for arg in node.args
        depth = max(depth, pieces[arg].depth + 1)
    end
    return Piece(depth, node.level, piece_text(node, pieces))
end

function piece_text(node::Node, pieces)
    node.form === Leaf && return node.text
    node.form === Prefix && return string(node.text, operand(node, 1, PREFIX_LEVEL, pieces))
    node.form === Infix &&
        return string(operand(node, 1, node.level, pieces), " ", node.text, " ", operand(node, 2, node.level + 1, pieces))
    inside = join(String[operand(node, i, 0, pieces) for i in eachindex(node.args)], ", ")
    return node.form === Load ? string(node.text, "[", inside, "]") : string(node.text, "(", inside, ")")
end

function operand(node::Node, i, weakest, pieces)
    piece = pieces[node.args[i]]
    return piece.level < weakest ? string("(", piece.text, ")") : piece.text
end
