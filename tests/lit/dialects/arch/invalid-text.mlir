// Messages of the parsers, with their place.
// RUN: trc-opt %s --split-input-file --verify-diagnostics

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{arch.fc has no parameter out_featurs; did you mean out_features?}}
  %0 = arch.fc %x {out_featurs = 3}
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{arch.fc has no parameter zzz: it has out_features, bias}}
  %0 = arch.fc %x {zzz = 3}
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{out_features is given twice}}
  %0 = arch.fc %x {out_features = 3, out_features = 4}
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{arch.fc needs out_features}}
  %0 = arch.fc %x
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{99999999999999999999 does not fit into 64 bits}}
  %0 = arch.fc %x {out_features = 99999999999999999999}
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{Expected integer literal for out_features}}
  %0 = arch.fc %x {out_features = 1.5}
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{arch.conv needs kernel}}
  %0 = arch.conv %x {out_channels = 4}
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{Expected `relu`, or `relu6`}}
  %0 = arch.cbr %x {out_channels = 4, kernel = 1, act = tanh}
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{%y is not defined above this line}}
  %0 = arch.relu %y
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{a value, such as %0, is expected}}
  %0 = arch.relu 3
  arch.output %0
}

// -----

arch.model @m(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{Expected `RESNET_1_3_1`}}
  %0 = arch.block %x {style = RESNET_9, out = 4}
  arch.output %0
}
