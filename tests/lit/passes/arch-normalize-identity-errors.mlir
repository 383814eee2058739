// RUN: trc-opt %s -p arch-normalize-identity --split-input-file --verify-diagnostics

arch.model @double(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.identity %x
  // expected-error@+1 {{layer 'add1': both branches of this sum are empty, so it would double its input}}
  %1 = arch.add %0, %x layer "add1"
  arch.output %1
}

// -----

arch.model @tree(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 's': arch.seq is structure, not a layer: run arch-expand-tree first}}
  %0 = arch.seq %x layer "s" (%a) {
    arch.yield %a
  }
  arch.output %0
}
