# Source lines that findings of the cases beside this folder point at. It is never run.
def forward(x, w1, w2):
    h = linear(gelu(linear(x, w1)), w2)
	y = gelu(h)  # a tab in front
    größe = rms_norm(h, w1, eps=1e-5)
    z = add(relu(h), gelu(h), relu(h), gelu(h), relu(h), gelu(h), relu(h), gelu(h), relu(h), gelu(h), relu(h))
    return z
