"""Operations that arrange elements without computing: broadcast, reshape, transpose, concatenate, iota."""
