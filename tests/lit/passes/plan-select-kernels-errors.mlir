// RUN: trc-opt %s -p plan-select-kernels --split-input-file --verify-diagnostics

arch.model @pool(%x: tensor<?x16x16x8xf32>) {
  // expected-error@+1 {{layer 'max_pool1': kernel is 12, and max pool goes up to 11}}
  %0 = arch.max_pool %x {kernel = 12, stride = 12} layer "max_pool1" first : tensor<?x1x1x8xf32>
  %1 = arch.fc %0 {out_features = 3} layer "fc1" : tensor<?x1x1x3xf32>
  %2 = arch.softmax_ce %1 {num_classes = 3} layer "softmax_ce" : tensor<?x1x1x3xf32>
  arch.output %2
}

// -----

arch.model @partless(%x: tensor<?x4x4x8xf32>) {
  // expected-error@+1 {{layer 'conv1': arch.cbr stands for 3 layers here, but names 2: run arch-plan first}}
  %0 = arch.cbr %x {out_channels = 8, kernel = 1} layer "conv1" parts ["conv1", "bn1"] first : tensor<?x4x4x8xf32>
  %1 = arch.gap_fc %0 {out_features = 3} layer "gap1" parts ["gap1", "fc1"] : tensor<?x1x1x3xf32>
  %2 = arch.softmax_ce %1 {num_classes = 3} layer "softmax_ce" : tensor<?x1x1x3xf32>
  arch.output %2
}

// -----

arch.model @structure(%x: tensor<?x1x1x8xf32>) {
  // expected-error@+1 {{arch.seq is still there: run arch-plan first}}
  %0 = arch.seq %x layer "s" (%a) {
    %1 = arch.relu %a
    arch.yield %1
  }
  arch.output %0
}
