// RUN: trc-opt %s -p arch-deduce-shapes --split-input-file --verify-diagnostics

// All bad layers are reported; what follows one of them is not.
arch.model @all(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'conv1': 3 groups do not divide 4 input channels}}
  %0 = arch.conv %x {out_channels = 6, kernel = 3, groups = 3} layer "conv1"
  %1 = arch.conv %0 {out_channels = 6, kernel = 9} layer "conv2"
  // expected-error@+1 {{layer 'pool': a kernel of 9 does not fit into height 8}}
  %2 = arch.max_pool %x {kernel = 9, stride = 1} layer "pool"
  // expected-error@+1 {{layer 'dw': a depthwise convolution of 4 channels cannot have 1 groups and 5 output channels}}
  %3 = arch.conv %x {out_channels = 5, kernel = 1, depthwise} layer "dw"
  // expected-error@+1 {{layer 'block': an identity shortcut of 4 channels cannot be added to a stem of 8}}
  %4 = arch.basic_block %x {out_channels = 8} layer "block"
  // expected-error@+1 {{layer 'loss': the network gives 8x8x4 = 256 numbers a sample, but there are 10 classes}}
  %5 = arch.softmax_ce %x {num_classes = 10} layer "loss"
  arch.output %5
}

// -----

arch.model @sum(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.conv %x {out_channels = 6, kernel = 3} layer "conv1"
  // expected-error@+1 {{layer 'add1': the shortcut is 8x8x4, the stem 6x6x6}}
  %1 = arch.add %x, %0 layer "add1"
  arch.output %1
}

// -----

// expected-error@+1 {{the input of @unknown is 8x8x?: give it height, width and channels}}
arch.model @unknown(%x: tensor<?x8x8x?xf32>) {
  arch.output %x
}

// -----

arch.model @told(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.relu %x layer "relu1"
  // expected-error@+1 {{layer 'tanh1': gives 8x8x4, but its type says ?x?x5}}
  %1 = arch.tanh %0 layer "tanh1" : tensor<?x?x?x5xf32>
  arch.output %1
}
