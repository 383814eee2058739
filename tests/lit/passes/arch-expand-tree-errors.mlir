// RUN: trc-opt %s -p arch-expand-tree --split-input-file --verify-diagnostics

arch.model @duplicate(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.relu %x layer "a"
  // expected-error@+1 {{layer 'a': this name is taken: another layer has it at}}
  %1 = arch.relu %0 layer "a"
  arch.output %1
}

// -----

arch.model @number(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.relu %x layer "relu2"
  // expected-error@+1 {{layer 'relu2': this name is taken: another layer has it at}}
  %1 = arch.relu %0
  // expected-error@+1 {{layer 'softmax_ce': this is the name of the loss; choose another}}
  %2 = arch.tanh %1 layer "softmax_ce"
  arch.output %2
}

// -----

arch.model @turns(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.repeat %x {times = 2} (%a) {
    // expected-error@+1 {{layer 'a': this name is taken: it is repeated; give the repetition around it a name}}
    %1 = arch.relu %a layer "a"
    arch.yield %1
  }
  arch.output %0
}

// -----

arch.model @many(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{the network has more than 100000 repetitions}}
  %0 = arch.repeat %x {times = 2000000000} (%a) {
    arch.yield %a
  }
  arch.output %0
}

// -----

arch.model @channels(%x: tensor<?x8x8x?xf32>) {
  // expected-error@+1 {{layer 'b': a block of style RESNET_3_3 depends on the number of its input channels}}
  %0 = arch.block %x {style = RESNET_3_3, out = 8} layer "b"
  arch.output %0
}

// -----

// The cause is named, not its consequence.
arch.model @cause(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'max_pool1': a kernel of 9 does not fit into height 8}}
  %0 = arch.max_pool %x {kernel = 9, stride = 1}
  %1 = arch.block %0 {style = RESNET_3_3, out = 8} layer "b"
  arch.output %1
}
