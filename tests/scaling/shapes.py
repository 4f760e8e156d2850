"""Programs of one shape at any size. Each is a function of n that gives bytes; what it is about
grows with n and nothing else does, so that work per piece that grows with the number of pieces
shows as a ratio."""

MESH = "mesh m { dp = 2, tp = 4 }\n"
LOCAL = "trace { mode = local }\n" + MESH

SHAPES = {}
# What else than `check` is timed.
ARGUMENTS = {}


def shape(function):
    SHAPES[function.__name__] = lambda n: function(n).encode()
    return function


def lines(n, line):
    return "".join(line(i) for i in range(n))


# --- the tables of a program


@shape
def ops(n):
    return LOCAL + "%0 = input f32[8, 16] V\n" + lines(n, lambda i: f"%{i + 1} = neg %{i}\n")


@shape
def distinct_shapes(n):
    return LOCAL + lines(
        n, lambda i: f"%{2 * i} = input f32[{i + 1}, 16] V\n%{2 * i + 1} = neg %{2 * i}\n"
    )


@shape
def symbols(n):
    return (
        LOCAL
        + lines(n, lambda i: f"symbol s{i} {{ min = 1 }}\n")
        + lines(n, lambda i: f"%x{i} = input f32[s{i}, 16] V\n%y{i} = neg %x{i}\n")
    )


@shape
def scales_of_symbols(n):
    n = min(n, 60000)  # of which there are 65534
    return (
        LOCAL
        + lines(n, lambda i: f"symbol s{i} {{ min = 1 }}\n")
        + lines(n, lambda i: f"%x{i} = input f32[8, 16] V scale s{i}\n%y{i} = neg %x{i}\n")
    )


@shape
def sums_of_symbols_compared(n):
    return (
        LOCAL
        + lines(n + 1, lambda i: f"symbol s{i} {{ min = 1 }}\n")
        + lines(
            n,
            lambda i: (
                f"%x{i} = input f32[(s{i} * 2), 16] V\n%y{i} = input f32[(2 * s{i + 1}), 16] V\n"
                f"%z{i} = add %x{i}, %y{i}\n"
            ),
        )
    )


@shape
def symbolic_axes(n):
    return (
        lines(n, lambda i: f"symbol s{i} {{ min = 1 }}\n")
        + "mesh m { dp = s0, tp = (2 * s1) }\n"
        + lines(
            n,
            lambda i: (
                f"%x{i} = input f32[(s{i} * s0), 16] R\n"
                f"%y{i} = convert %x{i} {{ axis = dp, src = R, dst = S(0) }}\n"
            ),
        )
    )


@shape
def symbol_products(n):
    return (
        LOCAL
        + lines(n, lambda i: f"symbol s{i} {{ min = 1 }}\n")
        + lines(n - 1, lambda i: f"%x{i} = input f32[(s{i} * s{i + 1}), 16] V\n%y{i} = neg %x{i}\n")
    )


@shape
def sum_of_symbols(n):
    return (
        LOCAL
        + lines(n, lambda i: f"symbol s{i} {{ min = 1 }}\n%x{i} = input f32[s{i}, 16] V\n")
        + "%z = cat ["
        + ", ".join(f"%x{i}" for i in range(n))
        + "] { dim = 0 }\n"
    )


@shape
def meshes(n):
    n = min(n, 16000)  # of which there may be 16384
    return lines(n, lambda i: f"mesh m{i} {{ a{i} = 2, b{i} = 4 }}\n") + lines(
        n, lambda i: f"mesh m{i}\n%x{i} = input f32[8, 16] R\n%y{i} = neg %x{i}\n"
    )


@shape
def groups(n):
    return (
        LOCAL
        + lines(n, lambda i: f'group "g{i}" = m.tp\n')
        + "%x = input f32[8, 16] P@tp R@dp\n"
        + lines(n, lambda i: f"%y{i} = all_reduce %x {{ axis = tp, src = P, dst = R }}\n")
    )


@shape
def listed_groups(n):
    return (
        LOCAL
        + lines(n, lambda i: f'group "g{i}" = [0, 1, 2, 3]\n')
        + "%x = input f32[8, 16] V\n%y = neg %x\n"
    )


@shape
def rules(n):
    return (
        LOCAL
        + lines(n, lambda i: f'rule my.op{i} = "a[...] -> [...]"\n')
        + "%x = input f32[8, 16] V\n"
        + lines(n, lambda i: f"%y{i} = my.op{i} %x\n")
    )


@shape
def unknown_ops(n):
    return LOCAL + "%x = input f32[8, 16] V\n" + lines(n, lambda i: f"%y{i} = my.op{i} %x\n")


@shape
def suppressions(n):
    return (
        LOCAL
        + lines(
            n,
            lambda i: (
                f'suppress partial-into-nonlinear {{ scope = "layers.{i}.*", reason = "r" }}\n'
            ),
        )
        + "%x = input f32[8, 16] P@tp V@dp\n"
        + lines(n, lambda i: f'%y{i} = gelu %x in "layers.{i}.act"\n')
    )


@shape
def ignores(n):
    return (
        LOCAL
        + "%x = input f32[8, 16] P@tp V@dp\n"
        + lines(n, lambda i: f"%y{i} = gelu %x {{ ignore = partial-into-nonlinear }}\n")
    )


@shape
def params(n):
    return LOCAL + lines(
        n, lambda i: f'%{i} = param f32[8, 16] R@dp V@tp "layers.{i}.w" {{ grad = P@dp }}\n'
    )


@shape
def steps(n):
    return (
        LOCAL
        + lines(n, lambda i: f'%w{i} = param f32[8, 16] R "layers.{i}.w"\n')
        + "%x = input f32[8, 16] V\n"
        + lines(n, lambda i: f"%y{i} = mul %{'x' if i == 0 else f'y{i - 1}'}, %w{i}\n")
        + f"%l = sum %y{n - 1} {{ partial = (dp, tp) }}\n"
        "%a = all_reduce %l { axis = (dp, tp), src = P, dst = I }\nbackward %a\n"
        + lines(
            n,
            lambda i: (
                f"%g{i} = grad %w{i}\n"
                f"%h{i} = all_reduce %g{i} {{ axis = (dp, tp), src = P, dst = R }}\n"
                f"step %w{i}, %h{i}\n"
            ),
        )
    )


@shape
def outputs(n):
    return (
        LOCAL
        + "%x = input f32[8, 16] V\n"
        + lines(n, lambda i: f"%y{i} = neg %x\n")
        + lines(n, lambda i: f"output %y{i}\n")
    )


@shape
def locations(n):
    return (
        LOCAL
        + "%x = input f32[8, 16] V\n"
        + lines(n, lambda i: f'%y{i} = neg %x at "f{i}.py":{i + 1}:1 fn "f{i}" in "s{i}"\n')
    )


@shape
def files(n):
    return (
        LOCAL
        + lines(n, lambda i: f'file "f{i}.py" {{ sha256 = "{i:064x}" }}\n')
        + "%x = input f32[8, 16] V\n"
        + lines(n, lambda i: f'%y{i} = neg %x at "f{i}.py":1\n')
    )


# --- findings


@shape
def findings(n):
    return LOCAL + "%x = input f32[8, 16] P@tp V@dp\n" + lines(n, lambda i: f"%y{i} = gelu %x\n")


@shape
def findings_in_scopes(n):
    return (
        LOCAL
        + "%x = input f32[8, 16] P@tp V@dp\n"
        + lines(n, lambda i: f'%y{i} = gelu %x in "layers.{i}.act"\n')
    )


@shape
def findings_behind_a_chain(n):
    return (
        LOCAL
        + "%0 = input f32[8, 16] P@tp V@dp\n"
        + lines(n, lambda i: f"%{i + 1} = neg %{i}\n")
        + lines(300, lambda i: f"%y{i} = gelu %{n}\n")
    )


@shape
def findings_along_a_chain(n):
    return (
        LOCAL
        + "%0 = input f32[8, 16] P@tp V@dp\n"
        + lines(n, lambda i: f"%{i + 1} = neg %{i}\n%y{i} = gelu %{i + 1}\n")
    )


@shape
def one_line(n):
    return (
        LOCAL
        + "%x = input f32[8, 16] P@tp V@dp; "
        + "; ".join(f"%y{i} = gelu %x" for i in range(n))
        + "\n"
    )


@shape
def one_long_statement(n):
    return (
        LOCAL
        + "%x = input f32[8, 16] P@tp V@dp\n%y = my.op %x { words = ["
        + ", ".join(f'"w{i}"' for i in range(n))
        + "] }\n"
    )


@shape
def invariants_mixed(n):
    return (
        LOCAL
        + "%x = input f32[8, 16] V\n"
        + lines(n, lambda i: f'%w{i} = param f32[16] I "w{i}"\n%y{i} = mul %x, %w{i}\n')
    )


@shape
def claims_missed(n):
    return LOCAL + lines(n, lambda i: f"%x{i} = input f32[8, 16]\n")


@shape
def claims_wrong(n):
    return (
        LOCAL + "%x = input f32[8, 16] V\n" + lines(n, lambda i: f"%y{i}: f32[8, 16] R = neg %x\n")
    )


@shape
def asserted_types(n):
    return (
        LOCAL
        + "%0 = input f32[8, 16] V\n"
        + lines(n, lambda i: f"%{i + 1} = assert_type %{i} {{ type = f32[8, 16] V }}\n")
    )


# --- wide statements


@shape
def operands(n):
    return LOCAL + "%x = input f32[8] V\n%y = cat [" + ", ".join(["%x"] * n) + "] { dim = 0 }\n"


@shape
def distinct_operands(n):
    return (
        LOCAL
        + lines(n, lambda i: f"%x{i} = input f32[{i + 1}] V\n")
        + "%y = cat ["
        + ", ".join(f"%x{i}" for i in range(n))
        + "] { dim = 0 }\n"
    )


@shape
def sharded_operands(n):
    return (
        MESH
        + "%x = input f32[8, 4@tp] R@dp\n%y = cat ["
        + ", ".join(["%x"] * n)
        + "] { dim = 0 }\n"
    )


@shape
def stacked_operands(n):
    return (
        MESH
        + "%x = input f32[8, 4@tp] R@dp\n%y = stack ["
        + ", ".join(["%x"] * n)
        + "] { dim = 0 }\n"
    )


@shape
def partial_operands(n):
    return (
        LOCAL
        + "%x = input f32[8] P@tp V@dp\n%y = cat ["
        + ", ".join(["%x"] * n)
        + "] { dim = 0 }\n%z = gelu %y\n"
    )


@shape
def mixed_operands(n):
    return (
        LOCAL
        + "%x = input f32[8] V\n"
        + lines(n, lambda i: f"%w{i} = param f32[8] I\n")
        + "%y = cat [%x, "
        + ", ".join(f"%w{i}" for i in range(n))
        + "] { dim = 0 }\n"
    )


@shape
def results(n):
    return (
        LOCAL
        + f"%x = input f32[{n}, 8] V\n"
        + ", ".join(f"%y{i}" for i in range(n))
        + " = split %x { split_size = 1, dim = 0 }\n"
    )


@shape
def each_operands(n):
    names = ", ".join(["%x"] * n)
    return (
        LOCAL
        + "%x = input f32[8] V\n"
        + ", ".join(f"%y{i}" for i in range(n))
        + f" = aten._foreach_add.List [{names}], [{names}]\n"
    )


@shape
def coalesced_operands(n):
    return (
        LOCAL
        + "%x = input f32[8] P@tp V@dp\n"
        + ", ".join(f"%y{i}" for i in range(n))
        + " = all_reduce ["
        + ", ".join(["%x"] * n)
        + "] { axis = tp, src = P, dst = R }\n"
    )


@shape
def attributes(n):
    return (
        LOCAL
        + "%x = input f32[8] V\n%y = my.op %x { "
        + ", ".join(f"k{i} = {i}" for i in range(n))
        + " }\n"
    )


@shape
def listed_numbers(n):
    return (
        LOCAL
        + "%x = input f32[8] V\n%y = my.op %x { k = ["
        + ", ".join(str(i) for i in range(n))
        + "] }\n"
    )


@shape
def uneven_blocks(n):
    return (
        f"mesh m {{ tp = {n} }}\n%x = input f32[8, 16] of [{8 * n - 5}, 16] S(0)@tp\n%y = neg %x\n"
    )


# --- bodies


@shape
def functions(n):
    return (
        LOCAL
        + lines(n, lambda i: f"func @f{i}(%a: f32[8, 16] V) {{\n  %b = neg %a\n  return %b\n}}\n")
        + "%0 = input f32[8, 16] V\n"
        + lines(n, lambda i: f"%{i + 1} = call %{i} {{ body = @f{i} }}\n")
    )


@shape
def calls(n):
    return (
        LOCAL
        + "func @f(%a: f32[8, 16] V) {\n  %b = neg %a\n  return %b\n}\n%0 = input f32[8, 16] V\n"
        + lines(n, lambda i: f"%{i + 1} = call %{i} {{ body = @f }}\n")
    )


@shape
def call_types(n):
    return (
        LOCAL
        + "func @f(%a) {\n  %b = neg %a\n  return %b\n}\n"
        + lines(
            n, lambda i: f"%x{i} = input f32[{i + 1}, 16] V\n%y{i} = call %x{i} {{ body = @f }}\n"
        )
    )


@shape
def call_findings(n):
    return (
        LOCAL
        + "func @f(%a: f32[8, 16]) {\n  %b = gelu %a\n  return %b\n}\n"
        + "%x = input f32[8, 16] P@tp V@dp\n"
        + lines(n, lambda i: f"%y{i} = call %x {{ body = @f }}\n")
    )


@shape
def opaque_functions(n):
    return (
        LOCAL
        + lines(n, lambda i: f"func @f{i}(%a: f32[8, 16] V) -> f32[8, 16] V\n")
        + "%0 = input f32[8, 16] V\n"
        + lines(n, lambda i: f"%{i + 1} = call %{i} {{ body = @f{i} }}\n")
    )


@shape
def rotating_carries(n):
    names = [f"%c{i}" for i in range(n)]
    zero = ["%v"] + ["%r"] * (n - 1)
    return (
        LOCAL
        + "%r = input f32[8] R\n%v = input f32[8] V\n%x = input f32[5, 8] R\n"
        + "func @body("
        + ", ".join(f"{c}: f32[8]" for c in names)
        + ", %x: f32[8]) {\n"
        f"  return {', '.join(names[-1:] + names[:-1])}\n}}\n"
        + ", ".join(f"%y{i}" for i in range(n))
        + f" = scan {', '.join(zero)}, %x {{ carry = {n}, body = @body }}\n"
    )


@shape
def rotating_zeros(n):
    names = [f"%c{i}" for i in range(n)]
    return (
        LOCAL
        + "%z = zeros { shape = [8], dtype = f32 }\n%x = input f32[5, 8] P@tp V@dp\n"
        + "func @body("
        + ", ".join(f"{c}: f32[8]" for c in names)
        + ", %x: f32[8]) {\n  %s = add %c0, %x\n"
        f"  return {', '.join(names[1:] + ['%s'])}\n}}\n"
        + ", ".join(f"%y{i}" for i in range(n))
        + f" = scan {', '.join(['%z'] * n)}, %x {{ carry = {n}, body = @body }}\n"
    )


@shape
def regions(n):
    return (
        MESH
        + "%0 = input f32[8, 16] R\n"
        + lines(n, lambda i: f"local tp {{\n%{i + 1} = neg %{i}\n}}\n")
    )


@shape
def loops(n):
    return (
        LOCAL
        + "%c0 = input f32[8] V\n%x = input f32[5, 8] V\n"
        + lines(
            n,
            lambda i: (
                f"func @body{i}(%c: f32[8], %x: f32[8]) {{\n  %s = add %c, %x\n  return %s\n}}\n"
                f"%c{i + 1} = scan %c{i}, %x {{ carry = 1, body = @body{i} }}\n"
            ),
        )
    )


@shape
def nested_functions(n):
    return (
        LOCAL
        + "func @f0(%a: f32[8] V) {\n  %b = neg %a\n  return %b\n}\n"
        + lines(
            60,
            lambda k: (
                f"func @f{k + 1}(%a: f32[8] V) {{\n"
                + lines(n // 60, lambda i: f"  %b{i} = neg %{'a' if i == 0 else f'b{i - 1}'}\n")
                + f"  %r = call %b{n // 60 - 1} {{ body = @f{k} }}\n  return %r\n}}\n"
            ),
        )
        + "%x = input f32[8] V\n%y = call %x { body = @f60 }\n"
    )


@shape
def with_blocks(n):
    return (
        LOCAL
        + "%0 = input f32[8, 16] V\n"
        + lines(n, lambda i: f"with {{ grad = false }} {{\n%{i + 1} = neg %{i}\n}}\n")
    )


# --- storage


@shape
def writes(n):
    return (
        LOCAL
        + "%0 = buffer f32[8, 16] V\n"
        + lines(n, lambda i: f"%{i + 1} = add_ mut %{i}, 1.0\n")
    )


@shape
def views(n):
    return (
        LOCAL
        + "%b = buffer f32[8, 16] V\n"
        + lines(n, lambda i: f"%v{i} aliases %b = view %b {{ shape = [16, 8] }}\n")
        + "%c aliases %b = add_ mut %b, 1.0\n"
        + lines(n, lambda i: f"%u{i} = neg %v{i}\n")
    )


@shape
def views_of_views(n):
    return (
        LOCAL
        + "%0 = buffer f32[8, 16] V\n"
        + lines(n, lambda i: f"%{i + 1} aliases %{i} = view %{i} {{ shape = [8, 16] }}\n")
        + f"%b = add_ mut %{n}, 1.0\n"
    )


@shape
def written_views(n):
    return (
        LOCAL
        + "%b = buffer f32[8, 16] V\n"
        + lines(
            n,
            lambda i: (
                "%v{i} aliases %{before} = view %{before} {{ shape = [8, 16] }}\n"
                "%w{i} aliases %v{i} = add_ mut %v{i}, 1.0\n"
            ).format(i=i, before=f"w{i - 1}" if i else "b"),
        )
    )


def blocks_of_one_buffer(n, shape, cut):
    return (
        LOCAL
        + f"%b = input f32[{shape}] V\n"
        + lines(n, lambda i: f"%v{i} aliases %b = slice %b {{ {cut(i)} }}\n")
        + lines(n, lambda i: f"%w{i} aliases %v{i} = mul_ mut %v{i}, 2.0\n")
        + lines(n, lambda i: f"%r{i} = neg %w{i}\n")
    )


@shape
def written_rows(n):
    return blocks_of_one_buffer(
        n, f"{8 * n}", lambda i: f"dim = 0, start = {8 * i}, end = {8 * i + 8}"
    )


@shape
def written_columns(n):
    return blocks_of_one_buffer(n, f"8, {n}", lambda i: f"dim = 1, start = {i}, end = {i + 1}")


# --- erased words


@shape
def erased(n):
    return (
        LOCAL
        + "%p = input f32[8] P@tp V@dp\n"
        + lines(n, lambda i: f"%a{i} = all_reduce %p {{ axis = tp }}\n")
    )


@shape
def erased_chain(n):
    return (
        LOCAL
        + "%p = input f32[8] P@tp V@dp\n%0 = all_reduce %p { axis = tp }\n"
        + lines(n, lambda i: f"%{i + 1} = neg %{i}\n")
    )


@shape
def erased_united(n):
    return (
        LOCAL
        + "%p = input f32[8] P@tp V@dp\n"
        + lines(n, lambda i: f"%a{i} = all_reduce %p {{ axis = tp }}\n")
        + "%s0 = neg %a0\n"
        + lines(n - 1, lambda i: f"%s{i + 1} = add %s{i}, %a{i + 1}\n")
    )


@shape
def erased_contradicted(n):
    return (
        LOCAL
        + "%p = input f32[8] P@tp V@dp\n%i = input f32[8] I@tp V@dp\n%v = input f32[8] V\n"
        + lines(
            n,
            lambda i: (
                f"%a{i} = all_reduce %p {{ axis = tp }}\n%b{i} = add %a{i}, %i\n"
                f"%c{i} = mul %a{i}, %v\n"
            ),
        )
    )


# --- recorded backwards


@shape
def joint(n):
    return (
        "trace { mode = local, phase = joint }\nmesh m { tp = 4 }\n"
        + "%x0 = input f32[8, 16] V\n%w = param f32[16] R\n"
        + lines(n, lambda i: f"%x{i + 1} = mul %x{i}, %w\n")
        + f"%d{n} grad_of %x{n} = ones_like %x{n} {{ phase = bwd }}\n"
        + lines(
            n,
            lambda i: (
                f"%d{n - 1 - i} grad_of %x{n - 1 - i} = mul %d{n - i}, %w {{ phase = bwd }}\n"
            ),
        )
    )


@shape
def fan_out(n):
    return (
        LOCAL
        + "%x = input f32[8, 16] R\n"
        + lines(n, lambda i: f"%y{i} = neg %x\n")
        + "%s0 = neg %y0\n"
        + lines(n - 1, lambda i: f"%s{i + 1} = add %s{i}, %y{i + 1}\n")
    )


# --- names


@shape
def long_name(n):
    return LOCAL + f"%{'x' * 16}{'y' * min(n, 500000)} = input f32[8, 16] P@tp V@dp\n"


@shape
def long_scopes(n):
    return (
        LOCAL
        + "%x = input f32[8, 16] P@tp V@dp\n"
        + lines(200, lambda i: f'%y{i} = gelu %x in "{"a." * n}{i}"\n')
    )


@shape
def long_comment(n):
    return LOCAL + "// " + "/ " * n * 16 + "\n%x = input f32[8, 16] V\n"


@shape
def blanks(n):
    return LOCAL + " \t\n" * n * 8 + "%x = input f32[8, 16] V\n"


# --- recorded steps without declarations


GRADUAL = "trace { mode = gradual, phase = step }\n" + MESH


@shape
def views_of_an_exchange(n):
    shapes = ["[2, 2, 4, 4]", "[2, 2, 2, 2, 4]", "[2, 2, 2, 2, 2, 2]", "[2, 2, 2, 2, 4]"]
    words = "split_dim = 0, concat_dim = 0"
    return (
        GRADUAL
        + "%q0 = input f32[2, 8, 4@dp]\n"
        + lines(4, lambda i: f"%q{i + 1} = reshape %q{i} {{ shape = {shapes[i]} }}\n")
        + f"%0: f32[2, 2, 2, 2, 4] = all_to_all %q4 {{ axis = dp, {words} }}\n"
        + lines(n, lambda i: f"%{i + 1} = reshape %{i} {{ shape = {shapes[2 + i % 2]} }}\n")
    )


@shape
def first_rows_of_many(n):
    first = "dim = 0, start = 0, end = 8"
    return (
        GRADUAL
        + "%a0 = input f32[8@dp]\n"
        + lines(n, lambda i: f"%t{i} = param f32[{16 + i}] R\n")
        + lines(n, lambda i: f"%s{i} = slice %t{i} {{ {first} }}\n%a{i + 1} = add %a{i}, %s{i}\n")
    )


@shape
def chain_of_a_stage(n):
    return (
        GRADUAL
        + "%x = input f32[8, 4] V\n%h0 = wait %x\n"
        + lines(n, lambda i: f"%h{i + 1} = relu %h{i}\n")
        + f"%g{n} grad_of %h{n} = ones_like %h{n} {{ phase = bwd }}\n"
        + lines(
            n,
            lambda i: (
                f"%g{n - i - 1} grad_of %h{n - i - 1} = mul %g{n - i}, %h{n - i - 1} "
                f"{{ bwd_of = %h{n - i}, phase = bwd }}\n"
            ),
        )
    )
