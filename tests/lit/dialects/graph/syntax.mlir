// What the parser of graph says about text that it cannot read.

// RUN: trc-opt %s --split-input-file --verify-diagnostics

graph.computation @train {
  // expected-error@+1 {{unknown graph id ZERO_GARD; did you mean ZERO_GRAD?}}
  graph.bucket ZERO_GARD on UPDATE {}
}

// -----

graph.computation @train {
  // expected-error@+1 {{unknown stream COMP_4; did you mean COMP_}}
  graph.bucket ZERO_GRAD on COMP_4 {}
}

// -----

graph.computation @train {
  graph.bucket ZERO_GRAD on UPDATE {
    // expected-error@+1 {{unknown region G_BN_BAIS; did you mean G_BN_BIAS?}}
    graph.range clear writes(G_BN_BAIS to G_DEEP_CONV)
  }
}

// -----

graph.computation @train {
  graph.bucket ZERO_GRAD on UPDATE {
    // expected-error@+1 {{parameter a is given twice}}
    graph.compute copy reads(@x) writes(@x) {a = 1, a = 2}
  }
}

// -----

// expected-error@+1 {{3000000000 does not fit into 32 bits}}
graph.step @a of @train columns [3000000000] buckets [] after []

// -----

graph.atlas captures [
  // expected-error@+1 {{a shape is N, H, W, C, not [1, 2]}}
  @train ZERO_GRAD [1, 2] column 0
] table {}

// -----

graph.atlas captures [] table {
  train_base [],
  // expected-error@+1 {{second row of the variant train_base}}
  train_base []
}

// -----

graph.atlas captures [] table {
  // expected-error@+1 {{unknown variant train_bse; did you mean train_base?}}
  train_bse []
}
