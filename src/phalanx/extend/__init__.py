"""Extension points for libraries that work on programs themselves; `phalanx.extend.core` has jaxprs and primitives."""
