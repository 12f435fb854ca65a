# Prints a graph of symbolic values as text of the language: values used twice get a `let`, so that n operations are n short
# pieces however much they share.

const DEEPEST_INLINE = 40  # deeper than this a text is cut by a `let`, well below what the parser nests

# What a text calls things: arrays by slot, with the order of their indices, and how the names of its lets begin; and
# whether its numbers are Float64.
struct Words
    names::Vector{String}
    orders::Vector{Order}
    lets::String
    doubles::Bool
end

struct Piece
    depth::Int
    level::Int
    text::String
end
const NO_PIECE = Piece(0, ATOM_LEVEL, "")

# Of a value that is shown, or of a modifier alone.
function formula_text(root::Sym)
    root.trace === nothing && return literal_text(root)
    arrays = array_facts(root.trace)
    names = array_names(arrays)
    return formula_text(root.trace.nodes, root.id, Words(names, [reversed_order(x.rank) for x in arrays], let_prefix(names), root.trace.doubles))
end

# Nodes are numbered operands first, so one pass backwards counts uses and one forwards prints.
function formula_text(nodes::Vector{Node}, root, words::Words)
    uses = use_counts(nodes, root)
    pieces = fill(NO_PIECE, root)
    io = IOBuffer()
    lets = 0
    for id in 1:(root - 1)
        uses[id] == 0 && continue
        piece = piece_of(nodes[id], pieces, words)
        if uses[id] > 1 && nodes[id].count > 0 || piece.depth > DEEPEST_INLINE
            print(io, "let ", words.lets, lets, " = ", piece.text, "; ")
            piece = Piece(0, ATOM_LEVEL, string(words.lets, lets))
            lets += 1
        end
        pieces[id] = piece
    end
    print(io, piece_of(nodes[root], pieces, words).text)
    return String(take!(io))
end

# "t", unless something captured is called t0 or the like.
function let_prefix(names)
    prefix = "t"
    while any(name -> startswith(name, prefix) && all(isdigit, SubString(name, length(prefix) + 1)), names)
        prefix *= "_"
    end
    return prefix
end

function use_counts(nodes, root)
    uses = zeros(Int, root)
    uses[root] = 1
    for id in root:-1:1
        uses[id] == 0 && continue
        for i in 1:nodes[id].count
            uses[nodes[id].args[i]] += 1
        end
    end
    return uses
end

function piece_of(node::Node, pieces, words)
    depth = 0
    for i in 1:node.count
        depth = max(depth, pieces[node.args[i]].depth + 1)
    end
    return Piece(depth, node.level, piece_text(node, pieces, words))
end

function piece_text(node::Node, pieces, words)
    node.form === Leaf && return String(node.text)
    node.form === Literal && return literal_text(node.kind, node.number, words.doubles)
    node.form === Load && return load_text(node, pieces, words)
    node.form === Prefix && return string(node.text, operand(node, 1, PREFIX_LEVEL, pieces))
    node.form === Infix &&
        return string(operand(node, 1, node.level, pieces), " ", node.text, " ", operand(node, 2, node.level + 1, pieces))
    return string(node.text, "(", join(String[operand(node, i, 0, pieces) for i in 1:node.count], ", "), ")")
end

function load_text(node::Node, pieces, words)
    slot = Int(node.number)
    order = words.orders[slot]
    return string(words.names[slot], "[", join(String[operand(node, order[i], 0, pieces) for i in 1:node.count], ", "), "]")
end

function operand(node::Node, i, weakest, pieces)
    piece = pieces[node.args[i]]
    return piece.level < weakest ? string("(", piece.text, ")") : piece.text
end
